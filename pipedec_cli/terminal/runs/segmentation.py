"""What `pipedec segment` does, from the raw data to the segmented splits, and what it says on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.gathering import SplitRules, gather_splits
from pipedec_cli.data.lengths import TokenCounter, WordCounter
from pipedec_cli.data.preparation import Fit, Preparer, joiner_of
from pipedec_cli.data.records import SPLITS, FieldNames, Level, Record, Segmentation, SplitName
from pipedec_cli.data.rows import STDIN, is_hub_name
from pipedec_cli.data.segmentation import PhraseSegmenter, Segmenter, make_segmenter
from pipedec_cli.data.splits import count_leaks
from pipedec_cli.data.statistics import describe_targets
from pipedec_cli.data.workspace import Workspace, save_segmented
from pipedec_cli.data.writing import manifest, to_json
from pipedec_cli.evaluate.promise import Promise, doubt, promise
from pipedec_cli.pipeline.grid import Limits
from pipedec_cli.terminal.console import Talk, write_stdout
from pipedec_cli.terminal.progress import stage
from pipedec_cli.terminal.views.segmentation import describe_counts, describe_too_long, render_summary

#: Targets that the promise is counted on; more change no digit that is shown.
PROMISE_TARGETS = 1000


@dataclass(frozen=True, slots=True)
class SegmentRequest:
    """What was asked for: the settings of one segmentation, resolved."""

    data: str
    level: Level
    separators: tuple[str, ...]
    joiner: str | None
    names: FieldNames
    dev: str | None
    test: str | None
    rules: SplitRules
    sub_max: int
    time_max: int
    split_long: bool
    tokenizer: str | None
    limit: int | None
    recipe: str | None


def run_segment(
    request: SegmentRequest, *, out: Path | None, workspace: Path | None, talk: Talk, as_json: bool
) -> None:
    """Segment as requested, write the splits and show what they are like."""
    place = Workspace.find(workspace)
    folder = out or place.data
    extra = _extra(request)
    _keep_inputs([request.data, *extra.values()], folder)
    measure = TokenCounter(request.tokenizer) if request.tokenizer else WordCounter()
    for location in filter(is_hub_name, (request.data, *extra.values())):
        talk.say(f"there is no {location} here: asking the hub for a data set of that name")
    with stage(talk, "reading"):
        gathered = gather_splits(
            request.data, extra, request.names, request.rules, limit=request.limit, warn=talk.warn
        )
    splits = gathered.splits
    records = [record for name in SPLITS for record in splits[name]]
    request.names.check(records)
    segmenter = _segmenter(request, splits, talk)
    segmentation = Segmentation(
        level=request.level,
        separators=segmenter.separators if isinstance(segmenter, PhraseSegmenter) else (),
        joiner=joiner_of(splits["train"], segmenter) if request.joiner is None else request.joiner,
        sub_max=request.sub_max,
    )
    preparer = Preparer(segmenter, segmentation, Fit(measure, request.time_max, request.split_long))
    segmented: dict[SplitName, list[Record]] = {}
    with stage(talk, "segmenting", total=len(records)) as advance:
        for name in SPLITS:
            segmented[name] = []
            for record in splits[name]:
                segmented[name].append(preparer.segment(record))
                advance()
    statistics = {name: describe_targets(segmented[name]) for name in SPLITS}
    with stage(talk, "counting steps"):
        promises = _promises(segmented["train"], measure, request)
    details: dict[str, Any] = {
        "time_max": request.time_max,
        "unit": measure.unit,
        "counts": asdict(preparer.counts),
        "statistics": {name: row.to_json() for name, row in statistics.items()},
        "promise": [row.to_json() for row in promises],
        "splits": {
            name: {"examples": len(segmented[name]), "origin": gathered.origins[name]} for name in SPLITS
        },
        "manifest": manifest(_settings(request), inputs=[request.data, *extra.values()]),
    }
    outdated = _outdated_models(place, folder, segmented)
    files = save_segmented(folder, segmented, segmentation, segmenter, details)

    if not talk.quiet and not as_json:
        talk.console.print(render_summary(statistics, promises, measure.unit))
    for line in describe_counts(preparer.counts, sub_max=request.sub_max):
        talk.say(line)
    talk.say(
        "records: "
        + ", ".join(f"{name} {len(segmented[name]):,} ({gathered.origins[name]})" for name in SPLITS)
    )
    _warn(
        talk,
        request,
        segmented,
        [describe_too_long(preparer.counts, unit=measure.unit, time_max=request.time_max)],
    )
    if why := doubt(statistics["train"].subsequences_per_target, promises):
        talk.warn(why)
    if outdated:
        talk.warn(
            f"{outdated} was trained on other data than {folder} holds now: train again, or its test is not one"
        )
    talk.say(f"wrote {', '.join(path.name for path in files)} to {folder}")
    if as_json:
        write_stdout(
            to_json({"out": str(folder), **msgspec.to_builtins(segmentation), **details}, indent=2) + "\n"
        )


def _extra(request: SegmentRequest) -> dict[SplitName, str]:
    extra: dict[SplitName, str] = {}
    if request.dev is not None:
        extra["dev"] = request.dev
    if request.test is not None:
        extra["test"] = request.test
    if [request.data, *extra.values()].count(STDIN) > 1:
        raise UserError(
            "standard input can be read only once", todo="give one of DATA, --dev and --test as `-`"
        )
    return extra


def _keep_inputs(inputs: Sequence[str], folder: Path) -> None:
    """Refuse to write over what is read.

    Raises:
        UserError: an input is one of the files that would be written, or their folder.
    """
    written = {folder.resolve(), *((folder / f"{name}.jsonl").resolve() for name in SPLITS)}
    for place in inputs:
        if place != STDIN and Path(place).resolve() in written:
            raise UserError(
                f"{place} would be written over with what is read from it", todo="give another --out"
            )


def _segmenter(
    request: SegmentRequest, splits: Mapping[SplitName, Sequence[Record]], talk: Talk
) -> Segmenter:
    records = [record for name in SPLITS for record in splits[name]]
    with stage(talk, "learning where sentences end"):
        return make_segmenter(
            request.level,
            separators=request.separators,
            targets=[record.target or "" for record in records],
            sources=[record.source for record in records],
        )


def _promises(
    records: Sequence[Record], measure: WordCounter | TokenCounter, request: SegmentRequest
) -> list[Promise]:
    sample = records[:: -(-len(records) // PROMISE_TARGETS)]
    return promise(
        measure([record.target or "" for record in sample]),
        [measure(record.target_segments or ()) for record in sample],
        Limits(time_max=request.time_max, sub_max=request.sub_max),
    )


def _settings(request: SegmentRequest) -> dict[str, Any]:
    names, rules = asdict(request.names), asdict(request.rules)
    flat = {name: value for name, value in asdict(request).items() if name not in {"names", "rules"}}
    return {**flat, **{f"{name}_field": value for name, value in names.items()}, **rules}


def _outdated_models(
    place: Workspace, folder: Path, segmented: Mapping[SplitName, Sequence[Record]]
) -> Path | None:
    """The workspace's models, if they were trained on sources that are now held out."""
    models, before = place.root / "models", folder / "train.jsonl"
    if folder != place.data or not before.exists() or not models.is_dir() or not any(models.iterdir()):
        return None
    from pipedec_cli.data.workspace import load_split

    try:
        known = {record.source for record in load_split(before)}
    except UserError:
        return models
    now = {record.source for record in segmented["train"]}
    return models if known != now else None


def _warn(
    talk: Talk,
    request: SegmentRequest,
    segmented: Mapping[SplitName, Sequence[Record]],
    more: Sequence[str | None],
) -> None:
    for message in filter(None, more):
        talk.warn(message)
    if leaks := count_leaks(segmented):
        talk.warn(f"{leaks:,} records of dev and test have a source that train has, too")
    for name in SPLITS:
        if not segmented[name]:
            talk.warn(f"{name} is empty: there are too few different sources")
    if request.tokenizer is None:
        talk.say(
            "lengths are counted in words, as there is no tokenizer yet: tokens are more (--tokenizer counts them)"
        )
