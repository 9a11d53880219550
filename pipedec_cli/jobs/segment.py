"""`pipedec segment`: the data that the other commands work on, and what the method can save on them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta, structs, to_builtins

from pipedec_cli.compare.expected_calls import Estimate, doubt, estimate, suggest
from pipedec_cli.data.errors import UserError, log, many
from pipedec_cli.data.fields import Field, plain_text
from pipedec_cli.data.inputs import is_hub_name
from pipedec_cli.data.reading import (
    as_json,
    contents,
    keep_apart,
    require_place,
    require_writable,
)
from pipedec_cli.data.records import (
    SPLITS,
    FieldNames,
    Level,
    Record,
    Segmentation,
    SplitName,
)
from pipedec_cli.data.segmentation import (
    Counts,
    PhraseSegmenter,
    Preparer,
    Segmenter,
    TargetStatistics,
    TokenCounter,
    describe_targets,
    joiner_of,
    make_segmenter,
    token_counter,
)
from pipedec_cli.data.sets import has_sets, mixed, record_sets, refuse_sets
from pipedec_cli.data.splits import Splits, count_leaks, gather_splits, source_hashes
from pipedec_cli.data.stored import Again, StoredRecords
from pipedec_cli.data.trained import is_gguf, require_model
from pipedec_cli.data.workspace import (
    Workspace,
    read_split,
    require_own_data,
    save_segmented,
)
from pipedec_cli.data.writing import manifest, rounded
from pipedec_cli.events import Listen, silent, stage, track
from pipedec_cli.jobs.command_lines import command_line
from pipedec_cli.jobs.settings import (
    Count,
    WorkflowSettings,
    argument,
    fields_option,
    key,
    option,
    unescaped,
)
from pipedec_cli.jobs.train_settings import TrainSettings
from pipedec_cli.objects.json_schema import read_schema, schema_file
from pipedec_cli.objects.schema import learn_schema, object_of, read_short, settled
from pipedec_cli.pipeline.grid import Limits

_fields = partial(option, panel="Fields of the input")
_splits = partial(option, panel="Splits")


#: The least last time-step of a trained model; longer segments are reported.
_TIME_MAX: Final = 50
#: The most rows in decoding. Targets with more segments are merged to one less.
_ROWS: Final = 20
#: Of the split; equal sources always stay together.
_SEED: Final = 0


@dataclass(frozen=True, kw_only=True)
class SegmentSettings(WorkflowSettings):
    """The settings of `pipedec segment`."""

    data: str = argument(
        "A file (.jsonl, .json, .csv, .tsv, .parquet, or - for stdin), a folder, or OWNER/NAME of the hub.",
        MISSING,
    )
    level: Level = option(
        "sentence",
        "A subsequence is a sentence; a phrase, between separators; a clause, up to any punctuation; or a field of an object.",
    )
    separator: tuple[str, ...] = option(
        (), r"Ends a phrase; repeat it for several; \n and \t are read [default: ;]."
    )
    source_field: str = _fields("source", "The field that text is generated from.")
    target_field: str = _fields(
        "target", "The field with the right answer: a string, a list, or an object."
    )
    sources_only: bool = _fields(
        False, "There are no targets, but in --test: `train --teacher` writes them."
    )
    fields: str | None = fields_option(
        "Keys that get a row, in this order, with their kinds if you like: 'name, age int, tags list, day date, kind: pub|bar'; "
        "or a JSON Schema, or a pydantic class as FILE.py:CLASS, which imports and runs that file [default: those of the "
        "targets].",
        panel="Level field",
    )
    dev: str | None = _splits(None, "A file of its own for dev [default: split off].")
    test: str | None = _splits(None, "A file of its own for test [default: split off].")
    held_out: Annotated[float, Meta(ge=0, le=1)] = key(
        0.1, "The share that is split off for dev, and again for test."
    )
    any: bool = key(
        False,
        "Level field: each record has keys of its own, and `train` teaches to answer any key. A folder of sets, each a file or "
        "a folder, with its schema.json, is taken so by itself.",
    )
    tokenizer: str | None = option(
        None,
        "Count the tokens of this folder, hub model or GGUF file [default: count words].",
    )
    limit: Count | None = option(None, "Read the first N records of each file.")
    out: Path | None = option(
        None, "The folder to write to [default: data in the workspace]."
    )

    @property
    def schema(self) -> str | None:
        """The file of the schema, if `fields` names one."""
        return schema_file(self.fields)

    @property
    def is_any(self) -> bool:
        """Whether each record has keys of its own."""
        return self.level == "field" and (self.any or has_sets(self.data))

    @property
    def separators(self) -> list[str]:
        """The separators of phrases, with line feeds and tabs in place of their escapes."""
        return [*map(unescaped, self.separator)]

    @property
    def unit(self) -> str:
        """What lengths are counted in."""
        return "tokens" if self.tokenizer else "words"


@dataclass(frozen=True)
class Segmented:
    """What `segment` made: its folder, what the targets are like, and the decoder steps that they would take."""

    out: Path
    segmentation: Segmentation
    statistics: Mapping[SplitName, TargetStatistics]  # {} if there are no targets
    estimates: Sequence[Estimate]
    unit: str  # what lengths are counted in: words or tokens
    details: Mapping[str, Any]


def segment(settings: SegmentSettings, listen: Listen = silent) -> Segmented:
    """Cut every target into its subsequences, and the data into train, dev and test."""
    place = settings.place
    folder = settings.out or place.data
    inputs = [settings.data, *_own_files(settings).values()]
    _check_level(settings)
    _check_inputs(inputs)
    require_place(settings.out, folder=True)
    _require_free(folder, inputs)
    count_tokens = _counter_of(settings.tokenizer)
    _tell_of_hub(inputs)
    splits, origins, fields, sets = _read(settings, folder, listen)
    with stage(listen, "learning where sentences end"):
        segmenter = _learn_segmenter(settings, splits, fields)
    segmentation = structs.replace(
        _segmentation_of(settings, splits["train"], segmenter, fields), sets=sets
    )
    prepare = Preparer(segmenter, segmentation, count_tokens, _TIME_MAX)
    segmented = _segment_all(splits, prepare, folder, listen)
    statistics = {}
    if not settings.sources_only:
        statistics = {name: describe_targets(rows) for name, rows in segmented.items()}
    estimates = []
    with stage(listen, "counting steps"):
        if statistics and not sets:
            estimates = _promise(segmented["train"], fields, count_tokens)
    recorded = {**settings.recorded, "separator": settings.separators}
    details = {
        "time_max": _TIME_MAX,
        "unit": settings.unit,
        "counts": asdict(prepare.counts),
        **_figures(statistics, estimates),
        "splits": {
            name: {"examples": len(segmented[name]), "origin": origins[name]}
            for name in SPLITS
        },
        "manifest": manifest(recorded, inputs=inputs),
    }
    outdated = _outdated_models(place, folder, segmented, settings.level)
    written = save_segmented(folder, segmented, segmentation, segmenter, details)

    _tell(settings, prepare.counts, segmented, _sizes(segmented, origins))
    if estimates:
        _tell_of_steps(segmented, statistics, estimates)
    if outdated:
        log.warning(outdated)
    log.info(f"wrote {', '.join(path.name for path in written)} to {folder}")
    return Segmented(
        folder, segmentation, statistics, estimates, settings.unit, details
    )


def _own_files(settings: SegmentSettings) -> dict[SplitName, str]:
    """The files of dev and test, where they have some of their own."""
    files: dict[SplitName, str | None] = {"dev": settings.dev, "test": settings.test}
    return {name: file for name, file in files.items() if file is not None}


def _check_inputs(inputs: Sequence[str]) -> None:
    """Refuse to read standard input twice."""
    if inputs.count("-") > 1:
        todo = "give one of DATA, --dev and --test as `-`"
        raise UserError("standard input can be read only once", todo=todo)


def _tell_of_hub(inputs: Iterable[str]) -> None:
    """Say which data sets are looked for on the hub."""
    for location in filter(is_hub_name, inputs):
        log.info(
            f"there is no {location} here: asking the hub for a data set of that name"
        )


class _Read(NamedTuple):
    """The data as they were read."""

    splits: Splits
    origins: Mapping[SplitName, str]  # where each split is from
    fields: tuple[Field, ...] = ()  # of objects; () if records have keys of their own
    sets: Mapping[str, tuple[Field, ...]] = {}  # the keys of each set by its name


def _read(settings: SegmentSettings, folder: Path, listen: Listen) -> _Read:
    """Read all records and, at level field, their keys."""
    if settings.is_any:
        return _read_sets(settings, folder, listen)
    with stage(listen, "reading"):
        splits, origins = _read_splits(settings, settings.data, folder)
    fields: tuple[Field, ...] = ()
    if settings.level == "field":
        fields = _fields_of(settings, settings.schema, splits["train"], listen)
    return _Read(splits, origins, fields)


def _read_sets(settings: SegmentSettings, folder: Path, listen: Listen) -> _Read:
    """Read the records of all sets, and the keys of each."""
    parts = {}
    keys = {}
    origins: Mapping[SplitName, str] = {}
    for each in record_sets(settings.data, settings.schema):
        with stage(listen, f"reading {each.name}"):
            parts[each.name], origins = _read_splits(settings, each.place, folder)
        train = parts[each.name]["train"]
        keys[each.name] = _fields_of(settings, each.schema, train, listen)
        read_off = each.schema or "no schema: keys are those of its targets"
        size = f"{many(len(train), 'record')} of train, {many(len(keys[each.name]), 'key')}"
        log.info(f"{each.name}: {size} ({read_off})")
    if len(parts) > 1:
        origins = dict.fromkeys(SPLITS, many(len(parts), "set"))
    return _Read(mixed(parts, folder), origins, sets=keys)


def _read_splits(
    settings: SegmentSettings, data: str, folder: Path
) -> tuple[Splits, Mapping[SplitName, str]]:
    """The records of each split of the data, and where they are from."""
    names = FieldNames(settings.source_field, settings.target_field)
    shares: dict[SplitName, float] = dict.fromkeys(("dev", "test"), settings.held_out)
    return gather_splits(
        data,
        _own_files(settings),
        names,
        shares,
        near=folder,
        seed=_SEED,
        **settings.some("limit", "sources_only"),
    )


def _learn_segmenter(
    settings: SegmentSettings, splits: Splits, fields: tuple[Field, ...]
) -> Segmenter:
    """The segmenter of the level, which learns from all texts."""
    sources = Again(lambda: (record.source for record in chain(*splits.values())))
    targets = Again(lambda: (record.target or "" for record in chain(*splits.values())))
    texts: list[Iterable[str]] = [sources]
    if not settings.sources_only:
        texts.insert(0, targets)
    return make_segmenter(
        settings.level, *texts, separators=settings.separators, fields=fields
    )


def _segmentation_of(
    settings: SegmentSettings,
    train: Sequence[Record],
    segmenter: Segmenter,
    fields: tuple[Field, ...],
) -> Segmentation:
    """How the targets are cut, as it is stored with the data."""
    joiner = joiner_of(train, segmenter)
    cut_at = segmenter.separators if isinstance(segmenter, PhraseSegmenter) else ()
    return Segmentation(settings.level, cut_at, joiner, _ROWS, fields)


def _segment_all(
    splits: Splits, prepare: Preparer, folder: Path, listen: Listen
) -> dict[SplitName, StoredRecords]:
    """All records with their targets cut, kept in temporary files in the folder.

    A UserError for a target that has to be an object and is none.
    """
    segmented = {name: StoredRecords(folder) for name in SPLITS}
    total = sum(map(len, splits.values()))
    for name, record in track(listen, _with_split(splits), total, "segmenting"):
        if record.target is None:
            segmented[name].append(record)
            continue
        if prepare.segmentation.level == "field":
            object_of(record)  # raises the error
        segmented[name].append(prepare.segment(record))
    return segmented


def _with_split(splits: Splits) -> Iterator[tuple[SplitName, Record]]:
    """All records, each with the name of its split."""
    for name, records in splits.items():
        for record in records:
            yield name, record


def _figures(
    statistics: Mapping[SplitName, TargetStatistics], estimates: Iterable[Estimate]
) -> dict[str, Any]:
    """What the targets are like and the steps that they would take, as they are stored."""
    return {
        "statistics": {
            name: rounded(to_builtins(row), 3) for name, row in statistics.items()
        },
        "promise": [
            rounded({**asdict(row), "ratio": row.ratio}, 4) for row in estimates
        ],
    }


def _sizes(splits: Splits, origins: Mapping[SplitName, str]) -> str:
    """How many records each split has, and where they are from."""
    examples = (
        f"{name} {len(rows):,} ({origins[name]})" for name, rows in splits.items()
    )
    return f"records: {', '.join(examples)}"


def _tell_of_steps(
    splits: Splits,
    statistics: Mapping[SplitName, TargetStatistics],
    estimates: Sequence[Estimate],
) -> None:
    """Say what the method can save on the data, or why it may save nothing."""
    why = doubt(statistics["train"].subsequences_per_target, estimates)
    if why:
        log.warning(why)
    log.info(suggest(len(splits["train"]), estimates))


def _require_free(folder: Path, inputs: Iterable[str]) -> None:
    """Refuse a folder in which nothing can be written, or something would be lost."""
    require_writable(folder)
    keep_apart(inputs, [folder, *(folder / f"{name}.jsonl" for name in SPLITS)])
    require_own_data(folder)


def _counter_of(model: str | None) -> TokenCounter:
    """What counts the tokens of texts, by the tokenizer of a folder, hub model or GGUF file; None: it counts words."""
    if model is None or not is_gguf(model):
        return token_counter(model)
    from pipedec_cli.model.gguf import loadable

    require_model(model)
    return token_counter(loadable(model))


def _check_level(settings: SegmentSettings) -> None:
    """Refuse what is for another level than the chosen one."""
    if settings.level != "field" and settings.fields is not None:
        what = f"--fields does not go with --level {settings.level}"
        raise UserError(what, todo="leave it out")
    if settings.level != "field":
        what = "is for --level field"
        settings.refuse("any", what=what)
        todo = "give one of them; or take --level field, at which one model learns the keys of all"
        refuse_sets(settings.data, todo)
    if settings.is_any and has_sets(settings.data):
        todo = "put dev.jsonl and test.jsonl into the folders of their sets"
        what = "is a file of one set, and there may be several"
        settings.refuse("dev", "test", what=what, todo=todo)
    if settings.level == "field" and settings.sources_only and not settings.fields:
        what = "without targets there is nothing to read the keys off"
        raise UserError(what, todo="give --fields or --schema")


def _fields_of(
    settings: SegmentSettings,
    schema: str | None,
    train: Sequence[Record],
    listen: Listen,
) -> tuple[Field, ...]:
    """The keys of objects: those of the `schema` or else of the settings, whose kinds are learnt from the training targets where they are open.

    Without any of both they are read off the targets.
    """
    given: dict[str, Field] | None = None
    if schema is not None:
        given = read_schema(schema)
    elif settings.fields is not None:
        given = read_short(settings.fields)
    if settings.sources_only:
        return tuple(settled(field) for field in (given or {}).values())
    with stage(listen, "reading the schema"):
        fields, others = learn_schema(train, given)
    if others:
        some = ", ".join(map(repr, list(others)[:3]))
        if len(others) > 3:
            some += ", …"
        left_out = f"{many(len(others), 'key')} left out"
        log.info(f"{left_out}, with {many(others.total(), 'value')} in train: {some}")
    return fields


def _promise(
    train: StoredRecords, fields: tuple[Field, ...], count_tokens: TokenCounter
) -> list[Estimate]:
    """The decoder steps that a thousand of the training targets would take; more would change no digit that is shown."""
    every = -(-len(train) // 1000)  # rounded up
    sample = train[::every]
    texts = [record.target_segments or () for record in sample]
    lengths = [count_tokens([*filter(None, segments)]) for segments in texts]
    if fields:
        # Each key has a length: 0 where it has no value.
        lengths = [
            [next(filled) if text else 0 for text in segments]
            for segments, filled in zip(texts, map(iter, lengths), strict=True)
        ]
        wholes = [plain_text(segments, fields) for segments in texts]
    else:
        wholes = [record.target or "" for record in sample]
    limits = Limits(_TIME_MAX, _ROWS)
    return estimate(count_tokens(wholes), lengths, limits, fields)


def _outdated_models(
    place: Workspace, folder: Path, splits: Splits, level: Level
) -> str | None:
    """A warning if the workspace's models were trained on sources that are now held out, or at another level."""
    models = place.root / "models"
    before = folder / "train.jsonl"
    if folder != place.data or not before.exists() or not any(models.glob("*")):
        return None
    import numpy as np

    other = f"{models} was trained on other data than {folder} holds now: train again, or its test is not one"
    # Each model's config.json says at which level its data were segmented.
    for config in sorted(models.glob("*/config.json")):
        then = level
        with suppress(UserError, LookupError, TypeError):  # it is of another make
            then = as_json(contents(config), str(config))["pipedec"]["segmentation"][
                "level"
            ]
        if then != level:
            what = f"{config.parent} was trained at level {then}"
            return f"{what}, and {folder} now holds level {level}: train again"
    with suppress(UserError):
        then_sources = source_hashes(read_split(before, need_target=False))
        sources = source_hashes(splits["train"])
        if np.array_equal(np.unique(then_sources), np.unique(sources)):
            return None
    return other


def _tell(
    settings: SegmentSettings, counts: Counts, splits: Splits, records: str
) -> None:
    """Say what was done to the targets, a line for each thing that happened at all; the `records` of each split; and what is doubtful."""
    merged = f" had too many segments: neighbours were merged to {_ROWS - 1}"
    for count, noun, what in (
        (counts.given, "target", " came segmented: kept as given"),
        (counts.merged, "target", merged),
        (counts.dropped, "empty segment", " between separators left out"),
        (counts.empty, "empty target", ""),
        (
            counts.rejoined,
            "target",
            " with line breaks or separators that predictions will not have",
        ),
        (counts.unlisted, "value", " of keys that are not in the schema left out"),
    ):
        if count:
            log.info(f"{many(count, noun)}{what}")
    log.info(records)
    if counts.too_long and not settings.is_any:
        part = "subsequence"
        start = " at Δt = 1"
        if settings.level == "field":
            part = "value"
            start = ""
        log.info(
            f"{many(counts.too_long, part)} in {counts.too_long_targets:,} of {many(counts.targets, 'target')} take more "
            f"than {_TIME_MAX} time-steps{start} (the longest has {counts.longest:,} {settings.unit}): `train` takes a "
            "time_max that 99.5 % of the targets do not exceed, or `--set time_max=N`"
        )
    leaks = count_leaks(splits)
    if leaks:
        log.warning(
            f"{many(leaks, 'record')} of dev and test with a source that train has, too"
        )
    for name in SPLITS:
        if not splits[name] and (name == "train" or settings.held_out):
            log.warning(f"{name} is empty: there are too few different sources")
    if settings.sources_only:
        _tell_of_teachers(settings)
    elif settings.tokenizer is None:
        counted = "lengths are counted in words, as there is no tokenizer yet"
        log.info(f"{counted}: tokens are more (--tokenizer counts them)")


def _tell_of_teachers(settings: SegmentSettings) -> None:
    """What comes next where there are no targets."""
    taught = TrainSettings(
        data=settings.out, teacher="MODEL", workspace=settings.workspace
    )
    log.info(
        f"next: `{command_line('train', taught)}` has that model write the targets"
    )
    if settings.test is None:
        log.info("`score` needs right answers: --test FILE, whose records have them")
