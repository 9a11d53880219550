"""What each dtype costs a model on given texts: `pipedec bench --fidelity`, and a part of `pipedec report`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipedec_cli.data.checking import missing_field
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.lines import record_of
from pipedec_cli.data.preparation import Preparer
from pipedec_cli.data.reading import require_place
from pipedec_cli.data.records import Record
from pipedec_cli.data.rows import read_rows
from pipedec_cli.data.writing import manifest, write_json
from pipedec_cli.evaluate.fidelity import FidelityTable, compare_dtypes
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.loading import announce_compiling, warn_uncompiled
from pipedec_cli.jobs.report_settings import BenchSettings, ReportSettings

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint
    from pipedec_cli.model.decoder import Decoder

#: What is compared unless --dtypes is given, by the type of the device.
_USUAL: Final = {"cpu": ("bfloat16", "int8", "int4"), "cuda": ("bfloat16", "float16")}


def fidelity(settings: BenchSettings, notify: Notify) -> tuple[FidelityTable, dict[str, Any]]:
    """Compare the dtypes with float32. Returns the table, and its plain values with a manifest."""
    from pipedec_cli.model.arguments import choose_device
    from pipedec_cli.model.decoder import load
    from pipedec_cli.model.scratch import shape_of

    assert settings.fidelity is not None
    if shape_of(settings.model, settings.family) is not None:
        what = f"--fidelity: {settings.model} has fresh weights, and their texts mean nothing"
        raise UserError(what, todo="give --model a folder or a hub name")
    require_place(settings.out)
    device = choose_device(settings.device)
    wanted = settings.dtypes if "dtypes" in settings.typed else _USUAL[device.type]
    dtypes = dict.fromkeys(("float32", *wanted))
    announce_compiling(device.type, notify)
    decoders = {}
    for dtype in dtypes:
        notify.say(f"loading {settings.model} in {dtype} …")
        decoders[dtype] = load(settings.model, dtype=dtype, device=str(device))
    checkpoint = decoders["float32"].checkpoint
    warn_uncompiled(checkpoint, notify)
    records = _segmented(_read(settings.fidelity, checkpoint), checkpoint)
    made = _compare(decoders, records, settings.fidelity_tokens, notify)
    content = asdict(made) | {"manifest": manifest(settings.recorded)}
    if settings.out is not None:
        write_json(settings.out, content)
        notify.say(f"saved {settings.out}")
    return made, content


def report_fidelity(
    settings: ReportSettings, decoders: Iterable[Decoder], records: Sequence[Record | None], notify: Notify
) -> Iterator[FidelityTable]:
    """What the dtype of a report costs its models on the targets of its records, where it is not float32."""
    from pipedec_cli.model.decoder import load

    texts = [record for record in records if record and record.target and record.target.strip()]
    if settings.dtype == "float32" or not settings.fidelity_tokens or not texts:
        return
    for decoder in decoders:
        name = decoder.checkpoint.name
        notify.say(f"loading {name} in float32, to see what {settings.dtype} changes …")
        exact = load(name, device=settings.device)
        exact.text, exact.checkpoint.eos = decoder.text, decoder.checkpoint.eos
        try:
            beside = {"float32": exact, settings.dtype: decoder}
            yield _compare(beside, _segmented(texts, exact.checkpoint), settings.fidelity_tokens, notify)
        except UserError as error:
            notify.warn(f"what {settings.dtype} changes in {name} is not measured: {error}")


def _compare(
    decoders: Mapping[str, Decoder], records: Iterable[Record], most: int, notify: Notify
) -> FidelityTable:
    """Compare decoders of one model, float32 first, on records with targets. The first decoder's codec reads the sources."""
    from pipedec_cli.model.training.collate import encode

    first = decoders["float32"]
    checkpoint, engines = first.checkpoint, {dtype: one.engine(1) for dtype, one in decoders.items()}
    records, own = tee(records)
    # Without a source and a prompt, a first token opens the text.
    opened = (
        replace(example, source=first.text.source(record.source)[0] or [checkpoint.opener])
        for record, example in zip(own, encode(checkpoint, records), strict=True)
    )
    texts = notify.track(opened, None, f"reading texts in {', '.join(decoders)}")
    return compare_dtypes(engines, checkpoint, texts, most)


def _read(location: Path, checkpoint: Checkpoint) -> Iterator[Record]:
    """The records of a file, each with a target."""
    for row in read_rows(location):
        record = record_of(row.value, row.where, row.number)
        if not record.target or not record.target.strip():
            raise missing_field(
                record.fields, "target", record.where, "its text is what the dtypes are compared on"
            )
        if not record.source and not checkpoint.backbone.prompted:
            raise missing_field(record.fields, "source", record.where, "the model's encoder reads it")
        yield record


def _segmented(records: Iterable[Record], checkpoint: Checkpoint) -> Iterator[Record]:
    """The records, their targets segmented as the checkpoint's targets were."""
    from pipedec_cli.model.checkpoint import PLAIN

    settings, codec = checkpoint.settings, checkpoint.codec()
    prepare = None
    if settings is not None and (cut := checkpoint.segmenter) is not None:
        prepare = Preparer(
            cut, settings.segmentation, lambda texts: [*map(len, codec.ids(texts))], settings.time_max
        )
    for given in records:
        record = prepare.segment(given) if prepare else given
        if record.target_segments is None and (settings or PLAIN).decoder == "pipelined":
            raise missing_field(record.fields, "target_segments", record.where)
        yield record
