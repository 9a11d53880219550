"""The records that are read and the models that are loaded, as the settings of a run say.

Blind rows are those of an ordinary model that was not trained for them: each row is a
question about the source, answered without a view of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipedec_cli.data.errors import UserError, log, many
from pipedec_cli.data.fields import (
    Field,
    FieldSegmenter,
    Keys,
    any_item,
    by_path,
    kind_of,
    leaves,
    rows_of,
    texts_of,
)
from pipedec_cli.data.inputs import (
    STDIN,
    Inputs,
    corpus_files,
    given_splits,
    read_records,
    scan_inputs,
)
from pipedec_cli.data.predictions import (
    ENDINGS,
    PredictionsFile,
    lines_path,
    spans_of,
)
from pipedec_cli.data.reading import (
    is_same_place,
    keep_apart,
    mended_text,
    real,
    require_place,
    require_writable,
    some_names,
)
from pipedec_cli.data.records import FieldNames, Record, SplitName
from pipedec_cli.data.stored import InvalidRecords
from pipedec_cli.data.trained import (
    is_model,
    require_ended,
    require_model,
    unended,
)
from pipedec_cli.data.workspace import Workspace, load_segmenter
from pipedec_cli.events import Listen, silent, stage
from pipedec_cli.importing import uncollected
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.objects.json_schema import GivenSchema, load_schema, tree_in
from pipedec_cli.objects.schema import learn_schema, read_short, settled
from pipedec_cli.objects.tree import tree_of
from pipedec_cli.pipeline.grid import SEQUENTIAL_LIMITS

if TYPE_CHECKING:
    import torch

    from pipedec_cli.decoding.decoder import Decoder
    from pipedec_cli.model.checkpoint import Checkpoint
    from pipedec_cli.objects.rows import BlindPlan, Rows


#: Examples are chosen from so many records.
_CHOSEN_FROM: Final = 2_000
#: Thresholds are fitted to so many records at most; to fewer than the second number
#: they say little.
MOST_FITTED, FEW_FITTED = 200, 24


def blind_rows(settings: GenerateSettings, given: GivenSchema | None = None) -> Rows:
    """What blind rows ask for, and the examples that are shown: the keys or questions of the settings, or a schema that is `given`.

    A UserError for a file or a schema that cannot be used.
    """
    from pipedec_cli.objects.candidates import with_values
    from pipedec_cli.objects.questions import Text
    from pipedec_cli.objects.rows import Rows

    if not all(map(str.strip, settings.ask)):
        raise UserError("--ask is empty", todo="ask a question")
    location, count = settings.shots or ("", 0)
    records = [*_with_targets(location, settings)] if location else []
    if settings.schema is not None:
        given = load_schema(settings.schema)
    if given is not None:
        tree = tree_in(given.schema, given.where)
    elif settings.fields is not None:
        tree = tree_of([*map(settled, read_short(settings.fields).values())])
    else:
        tree = tree_of(learn_schema(records)[0] if records else ())
    fields = [*tree.values()]
    if count > len(records):
        raise UserError(
            f"has {len(records):,} records with an object as target",
            where=location,
            todo=f"give at least {count}, or fewer --shots",
        )
    if records:
        _warn_of_unfilled(records, fields, location)
    records = [with_values(record, fields) for record in records]
    shots = tuple(choose_shots(records, fields, count))
    questions = tuple(
        Text(question, grounded=False) for question in dict.fromkeys(settings.ask)
    )
    given = given or GivenSchema(None, "the schema")
    return Rows(
        tree, questions, shots, given.schema, given.where, of_class=given.of_class
    )


def _warn_of_unfilled(
    records: Sequence[Record], fields: Sequence[Field], location: str
) -> None:
    """Warn of keys for which no record has a value: a model that is shown these records learns that they have none.

    `location` is the file of the records.
    """
    values = (leaf for record in records for leaf in leaves(record.target_fields or {}))
    filled = {any_item(keys) for keys, value in values if kind_of(value)}
    unfilled = [field.name for field in fields if field.keys not in filled]
    if unfilled:
        keys = some_names(unfilled)
        log.warning(
            f"{location}: no record has a value for {keys}: are the keys spelled alike?"
        )


def _with_targets(location: str, settings: GenerateSettings) -> Iterator[Record]:
    """The first records of a file that have an object as target."""
    path = Path(location)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(
            "is a pipe or a device",
            where=location,
            todo="give a file, which can be read again",
        )
    names = FieldNames(settings.source_field, settings.target_field)
    with_objects = (
        record
        for record in read_records(location, names)
        if record.target_fields is not None
    )
    return islice(with_objects, _CHOSEN_FROM)


def choose_shots(
    records: Sequence[Record], fields: Sequence[Field], count: int
) -> list[Record]:
    """Choose `count` of the records as examples for a prompt.

    Records come first whose values all stand in their texts: others would teach what a
    row that is held to its text cannot write. Among these, one after the other, the
    record is taken that shows of its keys what was shown least so far, with a value or
    without, and which value; the first of equals.
    """
    # Keys whose values are to stand in the text: not those of a choice.
    free = {
        field.keys for field in fields if field.kind != "boolean" and not field.enum
    }
    lacking = [
        sum(any_item(keys) in free for keys in _unread(record)) for record in records
    ]
    ways = [_ways(record, fields) for record in records]
    shown = Counter[tuple[str, bool | str]]()
    chosen: list[int] = []
    while len(chosen) < count:
        news: dict[int, float] = {}
        for number, its_ways in enumerate(ways):
            if number not in chosen:
                news[number] = sum(1 / (1 + shown[way]) for way in its_ways)
        best = max(news, key=lambda number: (-lacking[number], news[number]))
        chosen.append(best)
        shown.update(ways[best])
    return [records[number] for number in chosen]


def _ways(record: Record, fields: Sequence[Field]) -> list[tuple[str, bool | str]]:
    """What a record shows of each key, by its name: True or False for whether it has a value, and the value's text."""
    texts = texts_of(record.target_fields or {}, fields)
    ways: list[tuple[str, bool | str]] = []
    for (field, _), text in zip(rows_of(fields, len(texts)), texts, strict=True):
        ways.append((field.name, bool(text)))
        ways.append((field.name, text))
    return ways


def _unread(record: Record) -> Iterator[Keys]:
    """The keys of an example whose values do not stand in its text."""
    target = record.target_fields or {}
    spans = by_path(spans_of(target, record.source))
    for keys, value in by_path(target).items():
        if kind_of(value) and (spans[keys] is None or None in spans[keys]):
            yield keys


#: The models of a workspace, and the commands that make them.
WORKSPACE_MODELS: Final = {
    "pipelined": "pipedec train",
    "sequential": "pipedec train --decoder sequential",
}


# ---- records
# -----------------------------------------------------------------------------------------------------------


def read_inputs(settings: GenerateSettings, *, keep: Path | None = None) -> Inputs:
    """Read all records to generate from, to check and count them: texts of the command line, a split of the workspace, or other data.

    Files are scanned here and read again while generating, so that memory does not grow
    with them. Standard input, pipes and hub data sets are kept in a temporary file; so
    is everything, near the folder `keep`, if that is given. A `UserError` if nothing is
    there, or a record is not valid.
    """
    if settings.text:
        return _scan_texts(settings)
    place = settings.place
    split = settings.split or "test"
    path = Path(settings.data) if settings.data else place.split(split)
    location = settings.data or str(path)
    names = FieldNames(settings.source_field, settings.target_field)
    if settings.data is None:
        _require_split(place, path)
        names = FieldNames()  # `segment` gives the fields these names
    else:
        _check_split(settings, path, location, split)
    invalid: InvalidRecords | None = None
    if settings.skip_invalid or settings.in_parts:
        invalid = InvalidRecords()
    say_mended = True

    def read() -> Iterator[Record]:
        return read_records(
            location,
            names,
            split=split,
            say_mended=say_mended,
            plain=settings.plain,
            invalid=invalid,
            allow_empty=invalid is not None,
            skippable=True,
        )

    if location == STDIN or not (path.is_file() or path.is_dir()):
        keep = place.root
    inputs = scan_inputs(
        read, names, limit=settings.limit, keep=keep, location=location, invalid=invalid
    )
    say_mended = False  # the records are read again as texts are generated
    if settings.plain:
        _warn_of_json(inputs, location)
    return inputs


def _scan_texts(settings: GenerateSettings) -> Inputs:
    """The texts of the command line as records."""
    texts = []
    for number, text in enumerate(settings.text, start=1):
        where = f"--text {number}"
        # Bytes that are no UTF-8 come as halves of surrogate pairs.
        source = mended_text(text)
        if not text.strip():
            todo = "there must be something to generate from"
            raise UserError("is empty", where=where, todo=todo)
        with suppress(OSError):  # too long a name is no file
            if Path(text).is_file():
                todo = (
                    "give it as DATA (--plain for plain text) if its content is meant"
                )
                log.warning(f"{where}: {text!r} is read as words; {todo}")
        fields = {"id": str(number), "source": source}
        texts.append(Record(str(number), source, None, None, (), where, fields))
    return scan_inputs(
        lambda: iter(texts), FieldNames(), limit=settings.limit, location="--text"
    )


def _require_split(place: Workspace, path: Path) -> None:
    """A `UserError` unless the workspace has a file of the split that holds something."""
    place.require(path, "pipedec segment DATA")
    if path.stat().st_size == 0:
        todo = "give --split dev, or data of your own to generate from"
        raise UserError("is empty", where=path, todo=todo)


def _check_split(
    settings: GenerateSettings, path: Path, location: str, split: SplitName
) -> None:
    """A `UserError` if data of one's own have no such split."""
    if path.is_dir():
        if settings.split is None and corpus_files(path):
            return
        any_name = "JSON lines and parquet files may have any names without --split; else name them train.jsonl, dev.jsonl, test.jsonl"
        there = given_splits(location, any_name)
        if split not in there:
            todo = f"give --split {' or '.join(there)}"
            raise UserError(f"has no file for {split}", where=location, todo=todo)
    elif settings.split is not None and (location == STDIN or path.exists()):
        todo = "leave out --split"
        raise UserError("a single file has no splits", where=location, todo=todo)


def _warn_of_json(inputs: Inputs, location: str) -> None:
    """Warn if plain text is JSON, by its first line."""
    if any(record.source.startswith('{"') for record in inputs.read(0, 1)):
        what = "holds JSON, which --plain reads as text, keys and braces too"
        log.warning(f"{location} {what}: leave --plain out if its fields are meant")


# ---- models
# ------------------------------------------------------------------------------------------------------------


def find_model(name: str | None, place: Workspace) -> str:
    """The folder or hub name of a finished model, or a `UserError`; None is the workspace's ``pipelined``."""
    name = name or "pipelined"
    maker = WORKSPACE_MODELS.get(name)
    if maker:
        folder = place.require(place.model(name), maker)
        require_ended(folder)
        if not is_model(folder):
            raise unended(folder, maker, "its settings")
        name = str(folder)
    require_model(name)
    return name


def load_model(settings: GenerateSettings, listen: Listen = silent) -> Decoder:
    """The decoder that a run asks for: a model with its prompt.

    In exact mode it has a drafter as well, whose guesses the model checks; without
    training it answers a row of its own for each key or question.
    """
    if settings.exact:
        decoder = _exact_decoder(settings, settings.exact)
    elif settings.whole:
        decoder = _whole_decoder(settings)
    elif settings.is_blind:
        decoder = _blind_decoder(settings, listen)
    else:
        decoder = load_decoder(settings)
        _refuse_unasked(decoder)
        _hint_at_chat(settings, decoder)
        apply_prompt(settings.prompt_template, settings.chat, decoder)
        from pipedec_cli.decoding.plans import FieldPlan

        if isinstance(decoder.plan, FieldPlan):
            decoder.plan.grounded = bool(settings.grounded)
    if not decoder.plan.pipelined:
        _refuse_of_pipelined(settings)
    _refuse_of_objects(settings, decoder)
    return decoder


def _refuse_unasked(decoder: Decoder) -> None:
    """A `UserError` for a model that was taught to answer questions, and is asked none."""
    if decoder.checkpoint.questions:
        what = f"{decoder.checkpoint.name} was taught to answer questions"
        raise UserError(what, todo="ask them with --schema, --fields or --ask")


def _hint_at_chat(settings: GenerateSettings, decoder: Decoder) -> None:
    """Say that a model from elsewhere has a chat template, where nobody has chosen how it reads."""
    checkpoint = decoder.checkpoint
    chosen = settings.chat is not None or settings.prompt_template is not None
    has_chat = bool(getattr(checkpoint.tokenizer, "chat_template", None))
    if checkpoint.settings is None and has_chat and not chosen:
        log.info(f"{checkpoint.name} has a chat template, which --chat uses")


def _exact_decoder(settings: GenerateSettings, model: str) -> Decoder:
    """The decoder of exact mode: the sequential `model`, which writes its own text, and a drafter, whose guesses it checks.

    The drafter is the one of the settings, else a pipelined model if there is one, else
    the source.
    """
    from pipedec_cli.decoding.exact import exact_decoder

    template = settings.prompt_template
    chat = settings.chat
    sequential = load_decoder(settings, model=model)
    has_drafter = settings.model or is_model(settings.place.model("pipelined"))
    draft = settings.draft or ("pipelined" if has_drafter else "source")
    if draft != "pipelined":
        apply_prompt(template, chat, sequential)
        return exact_decoder(sequential, draft)
    drafter = load_decoder(settings)
    apply_prompt(template, chat, sequential, drafter)
    inherit_prompt(template, chat, sequential, drafter)
    return exact_decoder(sequential, drafter)


def _refuse_of_pipelined(settings: GenerateSettings) -> None:
    """Refuse the settings that only a pipelined decoder has, for a run that has none."""
    unused = ["empty_rows", "stop_on_repeat"]
    todo = "leave it out"
    if settings.delay == "wait":
        unused.append("delay")
    if settings.exact:
        unused += ["model", "sub_max", "time_max"]
        todo = "leave it out, or give --draft pipelined"
    what = "is for a pipelined decoder, and there is none"
    settings.refuse(*unused, what=what, todo=todo)


def _refuse_of_objects(settings: GenerateSettings, decoder: Decoder) -> None:
    """Refuse the settings of models that write objects, if this one writes none."""
    unused = []
    if not (decoder.checkpoint.together or decoder.blind):
        unused += ["chunk", "confidence", "grounded"]
    if decoder.fields is None:
        unused.append("spans")
    what = "is for a model that writes objects, a row for each value"
    settings.refuse(*unused, what=what)


def _blind_decoder(settings: GenerateSettings, listen: Listen) -> Decoder:
    """The decoder of blind rows. Its thresholds are fitted to records with right answers, if the settings name some."""
    from pipedec_cli.decoding.blind import blind_decoder, plan_of
    from pipedec_cli.decoding.calibration import calibrate, find_priors

    rows = blind_rows(settings)  # faults in files come before the weights
    records = []
    if settings.calibrate:
        records = _fitted_records(settings.calibrate, settings, [*rows.tree.values()])
        _warn_of_own_answers(settings.calibrate, settings.data)
    decoder = blind_decoder(
        load_decoder(settings),
        rows,
        grounded=settings.grounded is not False,
        template=settings.prompt_template,
        chat=settings.chat,
    )
    if records:
        if len(records) < FEW_FITTED:
            what = (
                f"{many(len(records), 'record')} cannot carry a threshold for each key"
            )
            log.warning(f"{what}: give --calibrate a file of at least {FEW_FITTED}")
        batch_size = 8 if settings.batch_size == "auto" else settings.batch_size
        with stage(listen, "calibrating", len(records)) as advance:
            tempered = calibrate(
                decoder, records, batch_size, advance, prior=settings.prior
            )
        for key in tempered:
            log.info(
                f"{key.key}: temperature {key.temperature:g}; expected calibration error "
                f"{key.before:.1f} % before, {key.after:.1f} % after"
            )
        _tell_of_thresholds(plan_of(decoder))
    elif settings.prior:
        find_priors(decoder)
    return decoder


def _whole_decoder(settings: GenerateSettings) -> Decoder:
    """The decoder of objects that are written as JSON in one go."""
    from pipedec_cli.decoding.whole import whole_decoder

    rows = blind_rows(settings)  # faults in files come before the weights
    return whole_decoder(
        load_decoder(settings),
        rows,
        template=settings.prompt_template,
        chat=settings.chat,
    )


def _fitted_records(
    location: str, settings: GenerateSettings, fields: Sequence[Field]
) -> list[Record]:
    """The records that thresholds are fitted to; a `UserError` if there are none."""
    from pipedec_cli.objects.candidates import with_values

    records = list(islice(_with_targets(location, settings), MOST_FITTED))
    if not records:
        what = "has no records with an object as target"
        raise UserError(what, where=location, todo="give records as for --shots")
    records = [with_values(record, fields) for record in records]
    _warn_of_unfilled(records, fields, location)
    return records


def _tell_of_thresholds(plan: BlindPlan) -> None:
    """Say how sure a value of each key must be to be kept."""
    from pipedec_cli.decoding.calibration import NO_VALUES

    least = []
    never = []
    for asked, threshold in zip(plan.asked, plan.thresholds, strict=True):
        if threshold >= NO_VALUES:
            never.append(asked.label)
        elif threshold > 0:
            least.append(f"{asked.label} {threshold:.2g}")
    if least:
        log.info(f"values with less confidence are left out: {', '.join(least)}")
    if never:
        why = "because none of them was sure to be right"
        log.info(f"all values are left out, {why}: {', '.join(never)}")


def _warn_of_own_answers(fitted: str, data: str | None) -> None:
    """Warn if thresholds are fitted to the right answers of the same file that is answered."""
    if data is not None and is_same_place(fitted, data):
        what = f"{fitted} is also the data: its values look better than those of other texts will be"
        log.warning(f"{what}; give --calibrate other records")


@uncollected()
def load_decoder(
    settings: GenerateSettings,
    *,
    model: str | None = None,
    consume: bool = True,
    role: str = "",
) -> Decoder:
    """Load a model with its own prompt, as the settings say.

    Args:
        settings: dtype, device, workspace, the longest source, and the model.
        model: another model than that of the settings.
        consume: the decoder's engine may empty the matrices of the loaded model; see
            `Decoder`.
        role: words before its name in the message that it is loaded.
    """
    model = model or settings.model
    name = find_model(model, settings.place)
    log.info(f"loading {role}{name} …")  # torch as well, which takes some seconds

    from pipedec_cli.decoding.decoder import load, usual_dtype
    from pipedec_cli.model.size import require_room

    where = _device_of(settings)
    if where.type == "cpu":
        dtype = settings.dtype or usual_dtype(name, where)
        require_room(name, dtype, _most_tokens(settings))
    longest = settings.max_source_tokens
    decoder = load(
        name,
        dtype=settings.dtype,
        device=str(where),
        max_source_tokens=longest,
        consume=consume,
    )
    warn_uncompiled(decoder.checkpoint)
    is_ours = decoder.checkpoint.settings is not None
    place = settings.place
    if not is_ours and place.segmentation.exists():
        # The texts of a model from elsewhere are cut as the targets in the workspace
        # were. --text asks for no object.
        segmenter = load_segmenter(place.data)
        cuts_objects = isinstance(segmenter, FieldSegmenter)
        if not (cuts_objects and settings.text and not settings.exact):
            decoder.checkpoint.segmenter = segmenter
    if model == "pipelined" and decoder.settings.decoder == "sequential":
        what = f"{name} is a sequential model, not a pipelined decoder"
        raise UserError(what, todo="make one with `pipedec train`")
    return decoder


def _device_of(settings: GenerateSettings) -> torch.device:
    """The device that decodes."""
    import torch

    from pipedec_cli.model.arguments import choose_device

    device = settings.device
    if device == "mps" or (device == "auto" and torch.backends.mps.is_available()):
        log.info("Apple's GPU is not supported: the CPU is used")
        device = "cpu"
    return choose_device(device)


def _most_tokens(settings: GenerateSettings) -> int:
    """About the most tokens whose keys and values a run keeps at once: those of its sources, and of what it writes."""
    from pipedec_cli.model.checkpoint import PLAIN

    source = settings.max_source_tokens or PLAIN.max_source_tokens
    if settings.text:
        # A token has at least a character, as a rule.
        source = min(source, max(map(len, settings.text)))
    size = settings.batch_size
    if size == "auto":
        size = 1
    written = settings.max_tokens or SEQUENTIAL_LIMITS.max_tokens or 0
    return size * (source + written)


def apply_prompt(template: str | None, chat: bool | None, *decoders: Decoder) -> None:
    """Change how decoders read sources: the `template` of the prompt, and whether it goes into a `chat`; None leaves theirs.

    Of several decoders, those are changed that have a prompt; if none has, all are: an
    encoder reads the text before the source.
    """
    prompted = [decoder for decoder in decoders if decoder.text.prompt is not None]
    for decoder in prompted or decoders:
        decoder.read_sources(template, chat=chat)


def inherit_prompt(
    template: str | None, chat: bool | None, sequential: Decoder, pipelined: Decoder
) -> None:
    """Let a sequential model from elsewhere read sources as the pipelined one does: prefix, limit and prompt.

    A model that was trained here stays as it is. `template` and `chat` are what the
    user asks for, which holds.
    """
    if sequential.checkpoint.settings is not None:
        return
    like = pipelined.text
    trained = pipelined.settings
    sequential.text.prefix = like.prefix
    sequential.text.max_source_tokens = like.max_source_tokens
    if sequential.text.prompt is None:
        return
    if like.prompt is not None:
        sequential.read_sources(like.prompt.template, chat=like.prompt.chat)
    else:  # an encoder-decoder has stored the prompt of its teacher
        chat = trained.chat if chat is None else chat
        stored = trained.prompt if chat == trained.chat else None
        sequential.read_sources(template or stored, chat=chat)


def warn_uncompiled(checkpoint: Checkpoint) -> None:
    """Warn that torch decodes a model of a family that has compiled kernels, since no compiler is there to make them."""
    from pipedec_cli.model.engine.native import describing as specs
    from pipedec_cli.model.engine.native import library as build
    from pipedec_cli.model.engine.native.variants import find_compiler

    on_cpu = checkpoint.device.type == "cpu"
    has_kernels = checkpoint.model.config.model_type in specs.FAMILIES
    variant = build.asked_variant()
    needs_no_compiler = variant == build.OFF or build.carried_library(variant)
    if not on_cpu or not has_kernels or needs_no_compiler:
        return
    if find_compiler() is None:
        todo = "`apt-get install g++` or `xcode-select --install` brings one"
        log.warning(
            f"{build.NO_COMPILER}: torch decodes, and takes 3 to 5 times as long; {todo}"
        )


def check_out(settings: GenerateSettings, path: Path) -> None:
    """A `UserError` unless predictions can be written to a file, or a table, whose input is elsewhere."""
    lines = lines_path(path)
    require_place(lines, endings=".jsonl, .csv or .parquet")
    if lines != path and path.is_dir():
        raise UserError("is a folder", where=str(path), todo="name a file in it")
    if lines.exists() and not lines.is_file():  # such as /dev/null
        return
    file = PredictionsFile(lines)
    place = settings.place
    read = []
    if not settings.text:
        read = [settings.data or str(place.split(settings.split or "test"))]
    keep_apart(read, [path, lines, file.manifest_path, file.invalid_path])
    folders = [real(place.data), *map(real, read)]
    if real(path.parent) in folders:  # a folder of data is read more than once
        raise UserError("is in a folder of data", where=path, todo="give another --out")
    if not settings.resume:
        _keep_tables_apart(path, lines)
        require_writable(path)
    _require_own(path, file)
    with file.lock():
        pass  # refused now, and not when all is read and loaded


def _require_own(path: Path, file: PredictionsFile) -> None:
    """A `UserError` if something stands there that no run of ours wrote; of a table at `path` it says which file is meant."""
    try:
        file.require_own()
    except UserError as error:
        if path == file.path:
            raise
        what = f"a table has its lines beside it, and {file.path.name} {error.what}"
        raise UserError(what, where=path, todo=error.todo) from None


def _keep_tables_apart(path: Path, lines: Path) -> None:
    """A `UserError` for a new table whose lines would replace those that a table of the other kind was made of."""
    for ending in ENDINGS:
        other = lines.with_suffix(ending)
        if lines != path != other and lines.exists() and other.exists():
            what = (
                f"its lines would replace {lines.name}, of which {other.name} was made"
            )
            todo = (
                f"give another --out, or --resume for a table of {lines.name} as it is"
            )
            raise UserError(what, where=path, todo=todo)
