"""What the paper sets and what it reports for its data sets, both read from TOML.

Its settings are in recipes/, a file for each data set, which `--config` can read as well: those of its section 4.3, which
hold for all six; what differs is the level of the subsequences and the metrics. Its figures are in paper.toml, so that
a report can show them beside what was measured.

Source: "Pipelined Decoder for Efficient Context-Aware Text Generation" (Huang et al.), Tables 1 to 5 and the text
of its section 5.3. Speeds are examples per second at batch 1 on one RTX 4090, Δt = 1; quality is on the test set.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from pipedec_cli.data.errors import UserError

Backbone = Literal["T5-Base", "T5-Large"]

#: How a figure that the paper's text at hand does not hold is shown.
NOT_AVAILABLE: Final = "not available"


@dataclass(frozen=True, slots=True)
class TargetLengths:
    """A data set's row of Table 1: its size, rounded as there, and the means of its targets' lengths."""

    train_examples: int
    test_examples: int
    words_per_target: float
    subsequences_per_target: float
    words_per_subsequence: float
    table: str = "Table 1"

    @property
    def means(self) -> tuple[float, float, float]:
        """Words a target, subsequences a target, words a subsequence."""
        return self.words_per_target, self.subsequences_per_target, self.words_per_subsequence


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderFigures:
    """What the paper measured of one decoder."""

    quality: Mapping[str, float]  # points of 100 by metric, a key of `METRIC_TITLES`
    dev_quality: Mapping[str, float] = field(default_factory=dict)  # empty where the text at hand has none
    throughput: float  # examples per second
    memory_mb: int | None = None  # on the GPU; None where the text at hand has none


@dataclass(frozen=True, slots=True)
class PaperRow:
    """Both decoders on one data set with one backbone: the plain model, and the pipelined decoder at Δt = 1."""

    dataset: str
    backbone: Backbone
    table: str
    sequential: DecoderFigures
    pipelined: DecoderFigures
    speedup: float


@dataclass(frozen=True, slots=True)
class DelayRow:
    """One row of Table 5: the pipelined T5-Base at one Δt, on the test set; quality as in `DecoderFigures`."""

    delay: int
    quality: Mapping[str, float]
    throughput: float
    table: str = "Table 5"


@dataclass(frozen=True, slots=True)
class SpeedupBySubsequences:
    """The ends of a curve of Figure 4, which the text states: speedup at 2 and at 9 target subsequences.

    `quality` is what it says of Figure 5, which has one of the data sets.
    """

    at_2: float
    at_9: float
    figure: str = "Figure 4"
    quality: str = ""


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    """What stands in paper.toml."""

    metrics: dict[str, str]
    devices: dict[Backbone, str]
    target_lengths: dict[str, TargetLengths]
    results: list[PaperRow]
    by_delay: dict[str, tuple[DelayRow, ...]]
    speedup_by_subsequences: dict[str, SpeedupBySubsequences]


_CONTENT: Final = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Content)

#: The metrics by their keys here, each as the paper heads its column.
METRIC_TITLES: Final[Mapping[str, str]] = _CONTENT.metrics
#: What the paper trained each backbone on.
DEVICES: Final[Mapping[Backbone, str]] = _CONTENT.devices
#: Table 1 by data set, in the paper's order.
TARGET_LENGTHS: Final[Mapping[str, TargetLengths]] = _CONTENT.target_lengths
SPEEDUP_BY_SUBSEQUENCES: Final[Mapping[str, SpeedupBySubsequences]] = _CONTENT.speedup_by_subsequences


def paper_rows(dataset: str) -> tuple[PaperRow, ...]:
    """What the paper reports for a data set: T5-Base, then T5-Large; () where it reports nothing."""
    return tuple(row for row in _CONTENT.results if row.dataset == dataset)


def paper_row(dataset: str, backbone: Backbone = "T5-Base") -> PaperRow | None:
    """What the paper reports for a data set with one backbone, or None where it reports nothing."""
    return next((row for row in paper_rows(dataset) if row.backbone == backbone), None)


def delay_rows(dataset: str) -> tuple[DelayRow, ...]:
    """The data set's rows of Table 5, by rising delay; () where there are none."""
    return _CONTENT.by_delay.get(dataset, ())


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the paper treats one data set; ``paper`` is what it does whatever the data, ``fields`` the same for objects."""

    name: str
    path: Path
    title: str  # as the paper writes it
    options: Mapping[str, Mapping[str, Any]]  # by command, each with ``_`` for ``-``

    def settings_for(self, command: str) -> dict[str, Any]:
        """The defaults that this recipe gives a command."""
        return dict(self.options.get(command, {}))


def _read(name: str) -> Recipe:
    path = Path(__file__).parent / "recipes" / f"{name}.toml"
    options = tomllib.loads(path.read_text(encoding="utf-8"))
    return Recipe(name, path, options.pop("recipe")["title"], options)


#: The recipes by name, in the order of the paper's Table 1, the general one first, and what the paper does not have last.
RECIPES: Final[Mapping[str, Recipe]] = {name: _read(name) for name in ("paper", *TARGET_LENGTHS, "fields")}


def recipe(name: str) -> Recipe:
    """The recipe of that name; a `UserError` with the names that there are if there is none."""
    if name not in RECIPES:
        raise UserError(f"no recipe is called {name!r}", todo=f"the recipes are {', '.join(RECIPES)}")
    return RECIPES[name]
