"""`pipedec bench --fidelity`: what each dtype costs a model on given texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
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
from pipedec_cli.jobs.bench_settings import BenchSettings
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.loading import announce_compiling

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint

#: What is compared unless --dtypes is given, by the type of the device.
_USUAL: Final = {"cpu": ("bfloat16", "int8", "int4"), "cuda": ("bfloat16", "float16")}


def fidelity(settings: BenchSettings, notify: Notify) -> tuple[FidelityTable, dict[str, Any]]:
    """Compare the dtypes with float32. Returns the table, and its plain values with a manifest."""
    from pipedec_cli.model.arguments import choose_device
    from pipedec_cli.model.decoder import load
    from pipedec_cli.model.scratch import shape_of
    from pipedec_cli.model.training.collate import encode

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
    engines = {dtype: decoder.engine(1) for dtype, decoder in decoders.items()}
    examples = encode(checkpoint, _records(settings.fidelity, checkpoint))
    # Without a source and a prompt, a first token opens the text.
    opened = (
        example if example.source else replace(example, source=[checkpoint.opener]) for example in examples
    )
    texts = notify.track(opened, None, f"reading texts in {', '.join(dtypes)}")
    made = compare_dtypes(engines, checkpoint, texts, settings.fidelity_tokens)
    content = asdict(made) | {"manifest": manifest(settings.recorded)}
    if settings.out is not None:
        write_json(settings.out, content)
        notify.say(f"saved {settings.out}")
    return made, content


def _records(location: Path, checkpoint: Checkpoint) -> Iterator[Record]:
    """The records of a file, each with a target, which is segmented as the checkpoint's targets were."""
    from pipedec_cli.model.checkpoint import PLAIN

    settings, codec = checkpoint.settings, checkpoint.codec()
    prepare = None
    if settings is not None and (cut := checkpoint.segmenter) is not None:
        prepare = Preparer(
            cut, settings.segmentation, lambda texts: [*map(len, codec.ids(texts))], settings.time_max
        )
    for row in read_rows(location):
        record = record_of(row.value, row.where, row.number)
        if not record.target or not record.target.strip():
            raise missing_field(
                record.fields, "target", record.where, "its text is what the dtypes are compared on"
            )
        if not record.source and not checkpoint.backbone.prompted:
            raise missing_field(record.fields, "source", record.where, "the model's encoder reads it")
        record = prepare.segment(record) if prepare else record
        if record.target_segments is None and (settings or PLAIN).decoder == "pipelined":
            raise missing_field(record.fields, "target_segments", record.where)
        yield record
