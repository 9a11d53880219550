"""What several sheets have: failures, the parts of the time, and the settings of the decoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipedec_cli.evaluate.metrics.confidence import PRECISION, kept
from pipedec_cli.view.formats import NONE, Format, count, number, points
from pipedec_cli.view.sheet import Line, Row, Section, Sheet, cells

if TYPE_CHECKING:
    from pipedec_cli.evaluate.comparison import Comparison
    from pipedec_cli.evaluate.entry import Entry
    from pipedec_cli.evaluate.failures import Failures
    from pipedec_cli.evaluate.scoring import ScoredRun


def failure_cells(
    failures: Failures | None, part: str, form: Format, *, repeats: bool
) -> list[tuple[str, str]]:
    """What goes wrong with a decoder: its rates, and the lengths of its texts in `part`, a subsequence or a field.

    `repeats` says whether there is a row for texts that were stopped because they repeated themselves.
    """
    lengths = NONE
    if failures is not None and failures.expected_per_text is not None:
        lengths = f"{failures.subsequences_per_text:.1f} of {failures.expected_per_text:.1f}"
    rates: list[Line] = [
        (f"duplicated {part}s", "duplicated_rate", form),
        (f"dropped {part}s", "dropped_rate", form),
        ("truncated predictions", "truncated_rate", form),
        ("stopped on repeat", "stopped_on_repeat_rate", form),
        ("alike predictions", "alike_rate", form),
    ]
    if not repeats:
        del rates[3]
    return [(f"{part}s per text", lengths), *cells(failures, rates)]


def time_parts(comparison: Comparison) -> dict[str, str]:
    """The parts of an example's time: row names, and the attributes of a `Timing`."""
    if comparison.conditions.prompted:
        return {"reading the prompt": "encoder_seconds", "decoding": "decoding_seconds"}
    return {"encoder": "encoder_seconds", "source keys": "setup_seconds", "decoding": "decoding_seconds"}


def reliability_sheet(name: str, runs: Sequence[tuple[str, ScoredRun]]) -> Sheet | None:
    """How often values are right that are this sure; None without confidences.

    The last of the `runs`, each with the name of its split, is shown. The threshold is that of the first.
    """
    (split, run), (first, fitted) = runs[-1], (runs[0][0], runs[0][1].reliability)
    if (found := run.reliability) is None:
        return None
    rows = [
        (
            f"{one.least:.1f} to {one.least + 0.1:.1f}",
            count(one.values),
            points(one.confidence),
            points(one.right),
        )
        for one in found.bins
    ]
    pairs = "of a right and a wrong value, the right one is surer so often"
    notes = [f"area under the ROC curve: {number('{:.3f}', found.auc)} ({pairs})"]
    if fitted is None or fitted.threshold is None:
        notes.append(f"no threshold keeps {PRECISION:g} % right values{first}")
    else:
        some = kept(run.judged, fitted.threshold)
        share = f"{some.values:,} of {len(run.judged):,} values, {some.right:.1f} % right{split}"
        notes.append(f"at least {some.least:.4g} sure, which keeps {PRECISION:g} % right{first}: {share}")
    columns = ("values", "mean confidence, %", "right, %")
    return Sheet(
        f"How sure, {name}", columns, (Section("", tuple(rows)),), notes=tuple(notes), corner="confidence"
    )


def precision_cells(entry: Entry, comparison: Comparison) -> list[tuple[str, str]]:
    """The dtype and the number of threads of a decoder."""
    threads = entry.runner.settings.get("threads", str(comparison.conditions.machine.threads))
    return [("dtype", entry.runner.settings["dtype"]), ("threads", threads)]


def settings_sheet(title: str, comparison: Comparison, measured: str, notes: Row) -> Sheet:
    """Version and settings of each decoder, and the machine that it was `measured` on."""
    rows = [
        (entry.name, ", ".join(map(" ".join, entry.runner.settings.items()))) for entry in comparison.entries
    ]
    where = comparison.conditions
    versions = (f"{name} {version or 'not installed'}" for name, version in where.versions.items())
    notes = (f"{measured} on {where.device}; {where.machine.line}", ", ".join(versions), *notes)
    return Sheet(title, ("settings",), (Section("", tuple(rows)),), notes=notes)
