"""The settings that the paper uses for each of its data sets, by the options of the commands that take them.

`--recipe NAME` makes them a command's defaults; a flag still wins. The settings are those of section 4.3 of
"Pipelined Decoder for Efficient Context-Aware Text Generation" and hold for all six data sets; what differs among
the data sets is the level of the subsequences and the metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.paper import Backbone
from pipedec_cli.data.records import Level

Task = Literal["summarization", "keyphrases", "multispan"]
Protocol = Literal["rouge", "chan2019", "multispanqa"]

#: What the paper trained each backbone on.
DEVICES: Final[Mapping[Backbone, str]] = {
    "T5-Base": "one 24 GB card (RTX 4090)",
    "T5-Large": "two 24 GB cards (RTX 4090)",
}


@dataclass(frozen=True, slots=True)
class Training:
    """The paper's training settings.

    Attributes:
        batch_size: examples per update.
        learning_rate: AdamW's.
        epochs: passes over the training set.
        optimizer: its name.
        max_source_tokens: longer sources are cut to this many tokens.
    """

    batch_size: int = 24
    learning_rate: float = 1e-4
    epochs: int = 10
    optimizer: str = "AdamW"
    max_source_tokens: int = 2048


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the paper treats one data set; or, named ``paper``, what it does whatever the data.

    Attributes:
        name: what `--recipe` takes.
        title: the data set's name as the paper writes it.
        level: what a subsequence is; None where the recipe leaves that to the user, like the next four.
        separators: what ends a phrase; () at level ``sentence``.
        joiner: what stands between two segments when a text is put together.
        task: the family of metrics.
        protocol: how exactly they are computed.
        delay: Δt, in time-steps.
        time_max: time-steps at most.
        sub_max: subsequences at most.
        training: batch, learning rate, epochs and source length.
    """

    name: str
    title: str
    level: Level | None = None
    separators: tuple[str, ...] = ()
    joiner: str | None = None
    task: Task | None = None
    protocol: Protocol | None = None
    delay: int = 1
    time_max: int = 50
    sub_max: int = 20
    training: Training = field(default_factory=Training)

    def settings_for(self, command: str) -> dict[str, Any]:
        """The defaults that this recipe gives a command, by the names of its options, with ``_`` for ``-``.

        A command that a recipe has nothing to say to gets none.
        """
        settings = _SETTINGS.get(command)
        return {} if settings is None else _known(settings(self))

    def as_json(self) -> dict[str, Any]:
        """All of the recipe as plain values."""
        return asdict(self)


def recipe(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        UserError: there is none; the names that there are follow.
    """
    try:
        return RECIPES[name]
    except KeyError:
        raise UserError(
            f"no recipe is called {name!r}", todo=f"the recipes are {', '.join(RECIPES)}"
        ) from None


def _segment(recipe: Recipe) -> dict[str, Any]:
    return {
        "level": recipe.level,
        "separator": list(recipe.separators) or None,
        "joiner": recipe.joiner,
        "time_max": recipe.time_max,
        "sub_max": recipe.sub_max,
    }


def _train(recipe: Recipe) -> dict[str, Any]:
    return {
        "delay": str(recipe.delay),
        "batch_size": recipe.training.batch_size,
        "optimizer": recipe.training.optimizer.lower(),
        "learning_rate": recipe.training.learning_rate,
        "epochs": recipe.training.epochs,
        "max_source_tokens": recipe.training.max_source_tokens,
        "time_max": recipe.time_max,
    }


def _generate(recipe: Recipe) -> dict[str, Any]:
    return {"delay": str(recipe.delay), "time_max": recipe.time_max, "sub_max": recipe.sub_max}


def _score(recipe: Recipe) -> dict[str, Any]:
    return {"task": recipe.task, "protocol": recipe.protocol}


def _report(recipe: Recipe) -> dict[str, Any]:
    return {"delays": str(recipe.delay), **_score(recipe)}


_SETTINGS: Final[Mapping[str, Callable[[Recipe], dict[str, Any]]]] = {
    "segment": _segment,
    "train": _train,
    "generate": _generate,
    "score": _score,
    "report": _report,
}


def _known(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _phrases(name: str, title: str, task: Task, protocol: Protocol) -> Recipe:
    return Recipe(name, title, "phrase", (";",), "; ", task, protocol)


def _sentences(name: str, title: str) -> Recipe:
    return Recipe(name, title, "sentence", (), " ", "summarization", "rouge")


#: The recipes by name, in the order of the paper's Table 1, the general one first.
RECIPES: Final[Mapping[str, Recipe]] = {
    entry.name: entry
    for entry in (
        Recipe("paper", "any data"),
        _phrases("msqa", "MSQA", "multispan", "multispanqa"),
        _phrases("kp20k", "KP20K", "keyphrases", "chan2019"),
        _phrases("kptimes", "KPTimes", "keyphrases", "chan2019"),
        _sentences("wikihowqa", "WikiHowQA"),
        _sentences("cnn_dailymail", "CNN/DMail"),
        _sentences("pubmed", "PubMed"),
    )
}
