"""The paper's settings for each of its data sets: a TOML file each, which `--config` can read as well.

The settings are those of its section 4.3 and hold for all six data sets; what differs among the data sets is the level
of the subsequences and the metrics.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.paper import TARGET_LENGTHS


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the paper treats one data set, whose title is as it writes it; ``paper`` is what it does whatever the data.

    The file has a table for each command that the recipe has something to say to; options have ``_`` for ``-``.
    """

    name: str
    path: Path
    title: str
    options: Mapping[str, Mapping[str, Any]]

    def settings_for(self, command: str) -> dict[str, Any]:
        """The defaults that this recipe gives a command."""
        return dict(self.options.get(command, {}))


def _read(name: str) -> Recipe:
    path = Path(__file__).with_name(f"{name}.toml")
    options = tomllib.loads(path.read_text(encoding="utf-8"))
    return Recipe(name, path, options.pop("recipe")["title"], options)


#: The recipes by name, in the order of the paper's Table 1, the general one first.
RECIPES: Final[Mapping[str, Recipe]] = {name: _read(name) for name in ("paper", *TARGET_LENGTHS)}


def recipe(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        UserError: there is none; the names that there are follow.
    """
    if name not in RECIPES:
        raise UserError(f"no recipe is called {name!r}", todo=f"the recipes are {', '.join(RECIPES)}")
    return RECIPES[name]
