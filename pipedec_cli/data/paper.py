"""The figures that the paper reports, as data, so that a report can show them beside what was measured.

Source: "Pipelined Decoder for Efficient Context-Aware Text Generation" (Huang et al.), Tables 1 to 5 and the text
of its section 5.3. Speeds are examples per second at batch 1 on one RTX 4090, Δt = 1; quality is on the test set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

Backbone = Literal["T5-Base", "T5-Large"]
BACKBONES: Final[tuple[Backbone, ...]] = ("T5-Base", "T5-Large")

#: How a figure that the paper's text at hand does not hold is shown.
NOT_AVAILABLE: Final = "not available"

#: The metrics by their keys here, each as the paper heads its column.
METRIC_TITLES: Final[Mapping[str, str]] = {
    "em_f1": "EM",
    "pm_f1": "PM",
    "present_f1@5": "present F1@5",
    "present_f1@M": "present F1@M",
    "absent_f1@5": "absent F1@5",
    "absent_f1@M": "absent F1@M",
    "rouge1": "Rouge-1",
    "rouge2": "Rouge-2",
    "rougeL": "Rouge-L",
}


@dataclass(frozen=True, slots=True)
class TargetLengths:
    """One row of Table 1: how long the targets of a data set are, and how many subsequences they have.

    Attributes:
        train_examples: examples in the train split, rounded as the paper has them.
        test_examples: examples in the test split, rounded as the paper has them.
        words_per_target: mean words of a target.
        subsequences_per_target: mean phrases or sentences of a target.
        words_per_subsequence: mean words of a phrase or sentence.
        table: where it stands.
    """

    train_examples: int
    test_examples: int
    words_per_target: float
    subsequences_per_target: float
    words_per_subsequence: float
    table: str = "Table 1"


@dataclass(frozen=True, slots=True)
class DecoderFigures:
    """What the paper measured of one decoder.

    Attributes:
        quality: points of 100 by metric (`METRIC_TITLES`), on the test set.
        dev_quality: the same on the dev set; empty where the paper gives none.
        throughput: examples per second.
        memory_mb: GPU memory in MB; None where the text at hand lacks the column.
    """

    quality: Mapping[str, float]
    dev_quality: Mapping[str, float]
    throughput: float
    memory_mb: int | None


@dataclass(frozen=True, slots=True)
class PaperRow:
    """Both decoders on one data set with one backbone.

    Attributes:
        dataset: the name of the data set here.
        backbone: ``T5-Base`` or ``T5-Large``.
        table: where it stands.
        sequential: the plain T5; the first line of the pair in the table.
        pipelined: the pipelined decoder at Δt = 1; the second line.
        speedup: pipelined over sequential throughput, as the paper prints it.
    """

    dataset: str
    backbone: Backbone
    table: str
    sequential: DecoderFigures
    pipelined: DecoderFigures
    speedup: float

    def as_json(self) -> dict[str, Any]:
        """The row as plain values; memory that is not available is null."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class DelayRow:
    """One row of Table 5: the pipelined T5-Base at one delay, on the test set.

    Attributes:
        delay: Δt in time-steps.
        quality: points of 100 by metric.
        throughput: examples per second.
        table: where it stands.
    """

    delay: int
    quality: Mapping[str, float]
    throughput: float
    table: str = "Table 5"


@dataclass(frozen=True, slots=True)
class SpeedupBySubsequences:
    """The ends of a curve of Figure 4, which the text states: speedup at 2 and at 9 target subsequences."""

    at_2: float
    at_9: float
    figure: str = "Figure 4"


#: Table 1, in the paper's order: phrases, then sentences. MSQA's 653 test examples are the published validation split.
TARGET_LENGTHS: Final[Mapping[str, TargetLengths]] = {
    "msqa": TargetLengths(4_600, 653, 8.7, 2.9, 3.0),
    "kp20k": TargetLengths(509_000, 20_000, 10.6, 5.3, 2.0),
    "kptimes": TargetLengths(259_000, 20_000, 11.0, 5.0, 2.2),
    "wikihowqa": TargetLengths(129_000, 40_000, 74.5, 7.8, 9.6),
    "cnn_dailymail": TargetLengths(287_000, 12_000, 54.6, 3.8, 14.4),
    "pubmed": TargetLengths(120_000, 7_000, 207.7, 6.9, 30.0),
}

SPEEDUP_BY_SUBSEQUENCES: Final[Mapping[str, SpeedupBySubsequences]] = {
    "wikihowqa": SpeedupBySubsequences(1.8, 5.1),
    "cnn_dailymail": SpeedupBySubsequences(2.1, 2.6),
    "pubmed": SpeedupBySubsequences(4.3, 5.6),
}


def paper_row(dataset: str, backbone: Backbone = "T5-Base") -> PaperRow | None:
    """What the paper reports for a data set, or None where it reports nothing."""
    return _ROWS.get((dataset, backbone))


def target_lengths(dataset: str) -> TargetLengths | None:
    """The data set's row of Table 1, or None where there is none."""
    return TARGET_LENGTHS.get(dataset)


def delay_rows(dataset: str) -> tuple[DelayRow, ...]:
    """The data set's rows of Table 5, by rising delay; () where there are none."""
    return _DELAYS.get(dataset, ())


_EM_PM: Final = ("em_f1", "pm_f1")
_KEYPHRASES: Final = ("present_f1@5", "present_f1@M", "absent_f1@5", "absent_f1@M")
_ROUGE: Final = ("rouge1", "rouge2", "rougeL")


def _figures(
    metrics: tuple[str, ...],
    test: tuple[float, ...],
    throughput: float,
    memory_mb: int | None = None,
    dev: tuple[float, ...] = (),
) -> DecoderFigures:
    quality = dict(zip(metrics, test, strict=True))
    return DecoderFigures(quality, dict(zip(metrics, dev, strict=True)) if dev else {}, throughput, memory_mb)


def _msqa(dev: tuple[float, float], test: tuple[float, float], speed: float, memory: int) -> DecoderFigures:
    return _figures(_EM_PM, test, speed, memory, dev)


def _keyphrases(test: tuple[float, float, float, float], speed: float, memory: int) -> DecoderFigures:
    return _figures(_KEYPHRASES, test, speed, memory)


def _rouge(dev: tuple[float, float, float], test: tuple[float, float, float], speed: float) -> DecoderFigures:
    return _figures(_ROUGE, test, speed, None, dev)


#: Tables 2, 3 and 4. The first decoder of each pair is the sequential one; its name is missing in the text's second line.
_ROWS: Final[Mapping[tuple[str, Backbone], PaperRow]] = {
    (row.dataset, row.backbone): row
    for row in (
        PaperRow(
            "msqa",
            "T5-Base",
            "Table 2",
            _msqa((72.2, 84.8), (72.3, 84.9), 5.4, 1802),
            _msqa((72.5, 85.2), (71.5, 84.3), 9.3, 1798),
            1.7,
        ),
        PaperRow(
            "msqa",
            "T5-Large",
            "Table 2",
            _msqa((75.5, 87.3), (74.7, 87.3), 3.1, 3713),
            _msqa((75.0, 87.2), (74.0, 87.1), 5.3, 3710),
            1.7,
        ),
        PaperRow(
            "kp20k",
            "T5-Base",
            "Table 3",
            _keyphrases((33.7, 39.2, 2.2, 4.2), 2.5, 1714),
            _keyphrases((27.8, 40.1, 4.0, 7.6), 5.1, 1634),
            2.0,
        ),
        PaperRow(
            "kp20k",
            "T5-Large",
            "Table 3",
            _keyphrases((33.0, 40.5, 2.1, 4.1), 1.6, 3972),
            _keyphrases((28.6, 41.4, 3.9, 7.5), 3.2, 3813),
            2.0,
        ),
        PaperRow(
            "kptimes",
            "T5-Base",
            "Table 3",
            _keyphrases((33.7, 51.0, 24.2, 33.0), 3.4, 1534),
            _keyphrases((32.2, 50.8, 22.8, 33.4), 8.4, 1467),
            2.5,
        ),
        PaperRow(
            "kptimes",
            "T5-Large",
            "Table 3",
            _keyphrases((34.8, 51.8, 24.7, 34.1), 1.8, 3944),
            _keyphrases((32.6, 51.6, 22.8, 34.0), 4.4, 3814),
            2.4,
        ),
        PaperRow(
            "wikihowqa",
            "T5-Base",
            "Table 4",
            _rouge((39.5, 16.7, 38.3), (35.9, 14.1, 34.9), 0.8),
            _rouge((39.2, 16.6, 38.0), (35.7, 13.9, 34.6), 4.6),
            5.8,
        ),
        PaperRow(
            "wikihowqa",
            "T5-Large",
            "Table 4",
            _rouge((41.2, 18.5, 40.1), (37.8, 15.7, 36.7), 0.5),
            _rouge((40.9, 18.4, 39.7), (37.3, 15.6, 36.2), 2.6),
            5.2,
        ),
        PaperRow(
            "cnn_dailymail",
            "T5-Base",
            "Table 4",
            _rouge((39.6, 17.8, 37.5), (39.2, 17.4, 37.1), 1.2),
            _rouge((38.4, 17.2, 36.4), (37.8, 16.6, 35.8), 2.9),
            2.4,
        ),
        PaperRow(
            "cnn_dailymail",
            "T5-Large",
            "Table 4",
            _rouge((39.6, 17.8, 37.5), (39.2, 17.4, 37.1), 0.7),
            _rouge((38.5, 17.5, 36.5), (38.0, 17.0, 36.0), 1.6),
            2.3,
        ),
        PaperRow(
            "pubmed",
            "T5-Base",
            "Table 4",
            _rouge((39.8, 18.3, 36.9), (39.7, 18.2, 36.8), 0.2),
            _rouge((38.2, 17.5, 35.5), (38.2, 17.4, 35.4), 1.3),
            6.5,
        ),
        PaperRow(
            "pubmed",
            "T5-Large",
            "Table 4",
            _rouge((40.5, 18.9, 37.6), (40.5, 18.7, 37.6), 0.1),
            _rouge((38.7, 17.8, 35.8), (38.4, 17.9, 36.2), 0.7),
            7.0,
        ),
    )
}


def _delay(delay: int, rouge: tuple[float, float, float], throughput: float) -> DelayRow:
    return DelayRow(delay, dict(zip(_ROUGE, rouge, strict=True)), throughput)


_DELAYS: Final[Mapping[str, tuple[DelayRow, ...]]] = {
    "wikihowqa": (
        _delay(1, (35.7, 13.9, 34.6), 4.6),
        _delay(2, (35.9, 13.9, 34.8), 4.4),
        _delay(3, (35.8, 13.7, 34.7), 4.3),
    ),
    "cnn_dailymail": (
        _delay(1, (37.8, 16.6, 35.8), 2.9),
        _delay(2, (37.5, 16.5, 35.5), 2.7),
        _delay(3, (38.0, 16.9, 36.1), 2.6),
    ),
    "pubmed": (
        _delay(1, (38.2, 17.4, 35.4), 1.3),
        _delay(2, (38.4, 17.6, 35.7), 1.3),
        _delay(3, (37.6, 17.2, 34.9), 1.2),
    ),
}
