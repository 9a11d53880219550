"""`pipedec segment`: the data that the other commands work on, and what the method can save on them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from msgspec import to_builtins
from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.console import Group
from rich.table import Table
from rich.text import Text

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.preparation import Counts, Preparer, TargetStatistics, describe_targets, measure_of
from pipedec_cli.data.reading import real
from pipedec_cli.data.records import SPLITS, FieldNames, Level, Segmentation, SplitName
from pipedec_cli.data.rows import is_hub_name
from pipedec_cli.data.segmentation import PhraseSegmenter, joiner_of, make_segmenter
from pipedec_cli.data.splits import Splits, count_leaks, gather_splits, source_hashes
from pipedec_cli.data.stored import Again, StoredRecords
from pipedec_cli.data.workspace import Workspace, read_split, save_segmented
from pipedec_cli.data.writing import manifest, to_json
from pipedec_cli.evaluate.advice import Estimate, doubt, estimate
from pipedec_cli.pipeline.grid import Limits
from pipedec_cli.terminal.console import Talk, command_line, write_stdout
from pipedec_cli.terminal.progress import stage, track
from pipedec_cli.terminal.settings import WorkflowSettings, argument, option
from pipedec_cli.terminal.tables import figures

EXAMPLES = """
pipedec segment data.jsonl --level sentence     # {"source": "…", "target": "…"} a line; splits it, too
pipedec segment train.csv --dev dev.csv --test test.csv \\
  --source-field article --target-field highlights
pipedec segment keyphrases.jsonl --level phrase --target-field keyphrases    # a list, or "a; b; c"
pipedec segment inputs.jsonl --sources-only     # for `pipedec train --teacher`, which has a T5 write the targets
pipedec segment data.jsonl --tokenizer google-t5/t5-base --split-long        # counts tokens instead of words
zcat big.jsonl.gz | pipedec segment - --limit 1000 --out try --json \\
  | jq .promise
"""

_fields = partial(option, panel="Fields of the input")
_splits = partial(option, panel="Splits")
_share = partial(_splits, min=0.0, max=1.0)
_grid = partial(option, panel="Fitting the grid")
_bound = partial(_grid, min=2)


@dataclass(frozen=True, kw_only=True)
class SegmentSettings(WorkflowSettings):
    """What `pipedec segment` is asked for."""

    data: str = argument(
        "JSON lines (.jsonl, .jsonl.gz or - for standard input), .json, .csv, .tsv or .parquet; a folder with "
        "train, dev and test files; or a hub data set, OWNER/NAME or OWNER/NAME:CONFIG.",
        MISSING,
    )
    level: Level = option(
        "sentence",
        "What a subsequence is: a sentence (the ends are learnt from your text); a phrase, between separators; "
        "or a clause, up to any punctuation.",
    )
    separator: tuple[str, ...] = option(
        (),
        r"What stands between two phrases; may be given several times, \n and \t are understood. "
        "The first is put back when phrases are joined \\[default: ;].",
    )
    joiner: str | None = option(
        None,
        "What stands between two segments when a prediction is put together \\[default: a space; '; ' for "
        "phrases; nothing for scripts without spaces].",
    )
    source_field: str = _fields("source", "The field that text is generated from.")
    target_field: str = _fields(
        "target", "The field with the right answer: a string, or a list that is segmented already."
    )
    id_field: str = _fields("id", "The field with the identifier; else the line number is one.")
    sources_only: bool = _fields(
        False, "The data have no targets: `pipedec train --teacher` has a T5 write them."
    )
    dev: str | None = _splits(None, "A file of its own for dev \\[default: split off].")
    test: str | None = _splits(None, "A file of its own for test \\[default: split off].")
    dev_fraction: float = _share(0.1, "The share that is split off for dev.")
    test_fraction: float = _share(0.1, "The share that is split off for test.")
    seed: int = _splits(0, "Of the split; equal sources always stay together.")
    sub_max: int = _bound(
        20, "Most subsequences in decoding; targets with more segments than one less are merged."
    )
    time_max: int = _bound(50, "The last time-step in decoding; longer segments are reported.")
    split_long: bool = _grid(False, "Split segments that are too long for it, at a clause or a word.")
    tokenizer: str | None = _grid(
        None, "Count the tokens of this checkpoint folder or hub model \\[default: count words]."
    )
    limit: int | None = option(None, "Read the first N records only, of each file.", min=1)
    out: Path | None = option(None, "The folder to write to \\[default: data in the workspace].")


def segment(settings: SegmentSettings) -> None:
    """Cut every target into its subsequences, and the data into train, dev and test.

    A pipelined decoder writes the subsequences of a text at the same time. This command says what they are, and shows what that can save before anything is trained: the decoder steps of the sequential and of the pipelined decoder, if a new subsequence starts every Δt = 1, 2 or 3 time-steps.

    Every field of the input is kept; train.jsonl, dev.jsonl and test.jsonl get `target_segments` besides. Nothing of a target is lost but white space: too many segments are merged, too long ones reported, empty phrases counted.
    """
    place, talk = Workspace.find(settings.workspace), Talk(settings.quiet)
    folder, limits = settings.out or place.data, Limits(settings.time_max, settings.sub_max)
    extra: dict[SplitName, str | None] = {"dev": settings.dev, "test": settings.test}
    held_out = {name: file for name, file in extra.items() if file is not None}
    inputs = [settings.data, *held_out.values()]
    _check_inputs(inputs, folder)
    unit, measure = "tokens" if settings.tokenizer else "words", measure_of(settings.tokenizer)
    for location in filter(is_hub_name, inputs):
        talk.say(f"there is no {location} here: asking the hub for a data set of that name")
    names = FieldNames(settings.source_field, settings.target_field, settings.id_field)
    shares: dict[SplitName, float] = {"dev": settings.dev_fraction, "test": settings.test_fraction}
    how = settings.some("seed", "limit", "sources_only")
    with stage(talk, "reading"):
        splits, origins = gather_splits(
            settings.data, held_out, names, shares, near=folder, warn=talk.warn, **how
        )
    joiner, separators = settings.joiner and _unescape(settings.joiner), [*map(_unescape, settings.separator)]
    sources = Again(lambda: (record.source for record in chain(*splits.values())))
    targets = Again(lambda: (record.target or "" for record in chain(*splits.values())))
    texts: tuple[Iterable[str], Iterable[str]] = (
        (sources, ()) if settings.sources_only else (targets, sources)
    )
    with stage(talk, "learning where sentences end"):
        segmenter = make_segmenter(settings.level, *texts, separators=separators)
    between = joiner_of(splits["train"], segmenter) if joiner is None else joiner
    cut_at = segmenter.separators if isinstance(segmenter, PhraseSegmenter) else ()
    segmentation = Segmentation(settings.level, cut_at, between, settings.sub_max)
    prepare = Preparer(segmenter, segmentation, measure, settings.time_max, settings.split_long)
    segmented: Splits = {name: StoredRecords(folder) for name in SPLITS}
    every = ((record, name) for name, rows in splits.items() for record in rows)
    for record, name in track(talk, every, sum(map(len, splits.values())), "segmenting"):
        segmented[name].append(record if settings.sources_only else prepare.segment(record))
    statistics = {
        name: describe_targets(rows) for name, rows in segmented.items() if not settings.sources_only
    }
    step = -(-len(segmented["train"]) // 1000)  # more targets change no digit that is shown
    with stage(talk, "counting steps"):
        sample = segmented["train"][::step] if statistics else ()
        lengths = [measure(record.target_segments or ()) for record in sample]
        wholes = measure([record.target or "" for record in sample])
        estimates = estimate(wholes, lengths, limits) if statistics else []
    asked = {**settings.some("data", "level"), "separators": separators, "joiner": joiner}
    details: dict[str, Any] = {
        "time_max": settings.time_max,
        "unit": unit,
        "counts": asdict(prepare.counts),
        "statistics": {name: row.to_json() for name, row in statistics.items()},
        "promise": [row.to_json() for row in estimates],
        "splits": {name: {"examples": len(segmented[name]), "origin": origins[name]} for name in SPLITS},
        "manifest": manifest(asked | settings.some(*_IN_MANIFEST), inputs=inputs),
    }
    outdated = _outdated_models(place, folder, segmented)
    written = save_segmented(folder, segmented, segmentation, segmenter, details)

    if statistics and not talk.quiet and not settings.as_json:
        talk.console.print(render_summary(statistics, estimates, unit))
    examples = (f"{name} {len(rows):,} ({origins[name]})" for name, rows in segmented.items())
    _tell(talk, settings, prepare.counts, segmented, f"records: {', '.join(examples)}")
    if statistics and (why := doubt(statistics["train"].subsequences_per_target, estimates)):
        talk.warn(why)
    if outdated:
        other = f"was trained on other data than {folder} holds now"
        talk.warn(f"{outdated} {other}: train again, or its test is not one")
    talk.say(f"wrote {', '.join(path.name for path in written)} to {folder}")
    if settings.as_json:
        write_stdout(to_json({"out": str(folder), **to_builtins(segmentation), **details}, indent=2) + "\n")


_IN_MANIFEST: Final = (
    *("dev", "test", "sub_max", "time_max", "split_long", "tokenizer", "limit", "recipe"),
    *("source_field", "target_field", "id_field", "sources_only", "dev_fraction", "test_fraction", "seed"),
)


def _unescape(text: str) -> str:  # a line feed and a tab are hard to type in a shell
    return text.replace(r"\n", "\n").replace(r"\t", "\t")


def _check_inputs(inputs: Sequence[str], folder: Path) -> None:
    """Refuse standard input twice, and to write over what is read."""
    if inputs.count("-") > 1:
        todo = "give one of DATA, --dev and --test as `-`"
        raise UserError("standard input can be read only once", todo=todo)
    written = {real(folder), *(real(folder / f"{name}.jsonl") for name in SPLITS)}
    for given in inputs:
        if given != "-" and real(given) in written:
            what = f"{given} would be written over with what is read from it"
            raise UserError(what, todo="give another --out")


def _outdated_models(place: Workspace, folder: Path, splits: Splits) -> Path | None:
    """The workspace's models, if they were trained on sources that are now held out."""
    models, before = place.root / "models", folder / "train.jsonl"
    if folder != place.data or not before.exists() or not any(models.glob("*")):
        return None
    import numpy as np

    with suppress(UserError):
        both = (read_split(before, need_target=False), splits["train"])
        known, now = (np.unique(source_hashes(rows)) for rows in both)
        return None if np.array_equal(known, now) else models
    return models


def _tell(talk: Talk, settings: SegmentSettings, counts: Counts, splits: Splits, records: str) -> None:
    """What was done to the targets, a line for each thing that happened at all."""
    for count, what in (
        (counts.given, "targets came segmented and were kept as they are"),
        (counts.merged, f"targets had too many segments: neighbours were merged to {settings.sub_max - 1}"),
        (counts.split, "splits were made in segments that were too long"),
        (counts.dropped, "empty segments between separators were left out"),
        (counts.empty, "targets are empty"),
    ):
        if count:
            talk.say(f"{count:,} {what}")
    talk.say(records)
    if counts.too_long:
        unit = "tokens" if settings.tokenizer else "words"
        talk.warn(
            f"{counts.too_long:,} subsequences in {counts.too_long_targets:,} of {counts.targets:,} targets do not "
            f"fit into {settings.time_max} time-steps at Δt = 1 (the longest has {counts.longest:,} {unit}) "
            "and would be cut: --split-long splits them, or decode with a larger --time-max"
        )
    if leaks := count_leaks(splits):
        talk.warn(f"{leaks:,} records of dev and test have a source that train has, too")
    for name in SPLITS:
        if not splits[name]:
            talk.warn(f"{name} is empty: there are too few different sources")
    if settings.sources_only:
        then = command_line("train", settings.out, teacher="T5", **settings.some("workspace"))
        talk.say(f"next: {then} has that T5 write the targets")
    elif settings.tokenizer is None:
        counted = "lengths are counted in words, as there is no tokenizer yet"
        talk.say(f"{counted}: tokens are more (--tokenizer counts them)")


def render_summary(
    statistics: Mapping[SplitName, TargetStatistics], estimates: Sequence[Estimate], unit: str
) -> Group:
    """Table 1 for each split and the steps, side by side where there is room, and how n is spread in train."""
    table_1 = ("examples", "words /\ntarget", "subsequences /\ntarget", "words /\nsubsequence")
    paper = Table("split", *figures(*table_1), box=SIMPLE_HEAD)
    for split, row in statistics.items():
        averages = (row.words_per_target, row.subsequences_per_target, row.words_per_subsequence)
        shown = [f"{value:.1f}" if row.examples else "–" for value in averages]
        paper.add_row(split, f"{row.examples:,}", *shown)
    headings = ("Δt", "sequential\nsteps", "pipelined\nsteps", "times\nfewer", "targets\ncut")
    steps = Table(*figures(*headings), box=SIMPLE_HEAD)
    for entry in estimates:
        means = (entry.sequential_steps, entry.pipelined_steps, entry.ratio)
        steps.add_row(str(entry.delay), *(f"{value:.1f}" for value in means), f"{entry.truncated:.1%}")
    train, groups = statistics["train"], ("0", "1 to 2", "3 to 5", "6 to 10", "11 or more")
    spread: Counter[str] = Counter()
    for length, times in sorted(train.histogram.items()):
        spread[groups[bisect_left((0, 2, 5, 10), length)]] += times
    shares = ", ".join(f"{name}: {times / train.examples:.0%}" for name, times in spread.items() if times)
    left = Group(Text("Targets, as in the paper's Table 1", style="bold"), paper)
    right = Group(Text(f"Decoder steps that the grid promises, in {unit}", style="bold"), steps)
    return Group(
        Columns([left, right], padding=(0, 3)),
        Text(
            f"train, by subsequences a target: {shares or 'none'}\n"
            f"The promise is counted on {estimates[0].targets if estimates else 0:,} targets of train: what both "
            "decoders would need to write just them.",
            style="dim",
        ),
    )
