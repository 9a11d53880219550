"""The settings of the paper, from section 4.3 (recipes/, a file for each data set), and its figures (paper.toml).

Source: "Pipelined Decoder for Efficient Context-Aware Text Generation" (Huang et al.),
Tables 1 to 5 and the text of its section 5.3. Speeds are examples per second at batch 1
on one RTX 4090, Δt = 1; quality is on the test set.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct, toml

from pipedec_cli.data.errors import UserError

Backbone = Literal["T5-Base", "T5-Large"]

#: Shown for a figure that the paper does not give.
NOT_AVAILABLE: Final = "not available"


class TargetLengths(Struct, frozen=True):
    """A data set's row of Table 1: its size, rounded as there, and the means of its targets' lengths."""

    train_examples: int
    test_examples: int
    words_per_target: float
    subsequences_per_target: float
    words_per_subsequence: float
    table: str = "Table 1"


class DecoderFigures(Struct, frozen=True, kw_only=True):
    """The paper's figures of one decoder."""

    quality: Mapping[str, float]  # points of 100 by metric, a key of `METRIC_TITLES`
    dev_quality: Mapping[str, float] = {}
    throughput: float  # examples per second
    memory_mb: int | None = None  # on the GPU; None where the paper gives none


class MainResult(Struct, frozen=True):
    """Both decoders on one data set with one backbone: the sequential decoder, and the pipelined decoder at Δt = 1."""

    dataset: str
    backbone: Backbone
    table: str
    sequential: DecoderFigures
    pipelined: DecoderFigures
    speedup: float


class DelayResult(Struct, frozen=True):
    """A row of Table 5: the pipelined T5-Base at one Δt, on the test set."""

    delay: int
    quality: Mapping[str, float]
    throughput: float
    table: str = "Table 5"


class SpeedupBySubsequences(Struct, frozen=True):
    """The ends of a curve of Figure 4, at 2 and at 9 target subsequences; `quality` is about Figure 5."""

    at_2: float
    at_9: float
    figure: str = "Figure 4"
    quality: str = ""


class PaperFigures(Struct, frozen=True):
    """The paper's figures for one data set; its Table 5 and Figure 4 do not have all of them."""

    row: MainResult
    delays: tuple[DelayResult, ...] = ()
    curve: SpeedupBySubsequences | None = None


class _Content(Struct, forbid_unknown_fields=True):
    metrics: dict[str, str]
    target_lengths: dict[str, TargetLengths]
    results: tuple[MainResult, ...]
    by_delay: dict[str, tuple[DelayResult, ...]]
    speedup_by_subsequences: dict[str, SpeedupBySubsequences]


_CONTENT: Final = toml.decode(
    Path(__file__).with_suffix(".toml").read_bytes(), type=_Content
)

#: The paper's column heads by our names of the metrics.
METRIC_TITLES: Final[Mapping[str, str]] = _CONTENT.metrics
#: Table 1 by data set, in the paper's order.
TARGET_LENGTHS: Final[Mapping[str, TargetLengths]] = _CONTENT.target_lengths


def paper_figures(dataset: str, backbone: Backbone = "T5-Base") -> PaperFigures | None:
    """The paper's figures for a data set with one backbone, the model that was trained; None for another data set."""
    for row in _CONTENT.results:
        if (row.dataset, row.backbone) == (dataset, backbone):
            delays = _CONTENT.by_delay.get(dataset, ())
            curve = _CONTENT.speedup_by_subsequences.get(dataset)
            return PaperFigures(row, delays, curve)
    return None


#: The file of each recipe: ``paper`` for any data, the paper's data sets, ``fields``
#: for objects.
RECIPES: Final[Mapping[str, Path]] = {
    name: Path(__file__).parent / "recipes" / f"{name}.toml"
    for name in ("paper", *TARGET_LENGTHS, "fields")
}


def recipe(name: str, command: str) -> dict[str, Any]:
    """The settings that a recipe gives a command, with ``_`` for ``-``. Raises a UserError if there is no such recipe."""
    if name not in RECIPES:
        todo = f"the recipes are {', '.join(RECIPES)}"
        raise UserError(f"no recipe is called {name!r}", todo=todo)
    tables = tomllib.loads(RECIPES[name].read_text(encoding="utf-8"))
    settings: dict[str, Any] = tables.get(command, {})
    return settings
