"""`pipedec bench`: a comparison on made-up lengths, to see without training what the method can give on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import product
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from pipedec_cli.compare.comparison import Bench, Sample
from pipedec_cli.compare.entry import Entry
from pipedec_cli.compare.peers import require_gguf
from pipedec_cli.compare.runners import EXACT, EngineRunner, Lengths
from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.records import Segmentation
from pipedec_cli.data.writing import manifest
from pipedec_cli.events import Listen, silent
from pipedec_cli.jobs.loading import warn_uncompiled
from pipedec_cli.jobs.measuring import measure, parse_compared
from pipedec_cli.jobs.report_settings import REPEATS, BenchSettings

if TYPE_CHECKING:
    from pipedec_cli.decoding.decoder import Decoder
    from pipedec_cli.model.checkpoint import Checkpoint

#: Source tokens of the paper's shapes, and of fields.
_SOURCE, _FIELDS_SOURCE = 512, 300
#: How the rows of a text start: None for one row, a delay in time-steps, all together,
#: or "blind": all together, and none sees another.
_Start = int | Literal["together", "blind"] | None


def bench(
    settings: BenchSettings, listen: Listen = silent
) -> tuple[Bench, dict[str, Any]]:
    """Time decoders on forced lengths, without training.

    Returns the comparison, and its plain values with a manifest.
    """
    peers, drafts = parse_compared(settings, refused=EXACT)
    if drafts:
        raise UserError(
            "--compare: the speed of exact mode depends on the text, and here texts mean nothing",
            todo="run `pipedec report --compare exact` on a trained model",
        )
    require_gguf(peers, settings.model, "--model", settings.peer_gguf)
    lengths = _chosen_lengths(settings)
    log.info(f"loading {settings.model} …")

    from pipedec_cli.model.arguments import choose_device

    with loaded(settings, str(choose_device(settings.device))) as decoders:
        checkpoint = decoders[0].checkpoint
        model = _in_words(settings.model, checkpoint)
        if checkpoint.places is not None and lengths.source > checkpoint.places:
            places = f"{settings.model} has {checkpoint.places:,} places for them"
            what = f"sources of {lengths.source:,} tokens, and {places}"
            raise UserError(what, todo=f"give --source {checkpoint.places} or less")
        planned = _plan(settings, decoders, lengths)
        log.info(f"forced lengths: {lengths.line}")
        longest = lengths.tokens + 1  # our decoders make an <eos>, too
        entries, conditions = measure(
            settings, planned, peers, checkpoint, longest, listen, forced=True
        )
    size = max(settings.batch_sizes)
    comparison = Bench(
        entries=tuple(entries),
        conditions=conditions,
        sample=Sample(size, size, REPEATS),
        model=model,
        lengths=lengths,
    )
    resolved = {"lengths": asdict(lengths), "peers": peers, **settings.recorded}
    return comparison, comparison.values() | {"manifest": manifest(resolved)}


def _plan(
    settings: BenchSettings, decoders: Sequence[Decoder], lengths: Lengths
) -> list[Entry]:
    """An entry for the sequential decoder and for each way to start rows, with each of the decoders, on the same random sources.

    The `decoders` are the same model in several dtypes; `lengths` say how long sources
    and texts are. Where the texts are objects, a decoder-only model has blind rows as
    well: each answers for its key without a view of the others.
    """
    checkpoint = decoders[0].checkpoint
    prompted = checkpoint.backbone.prompted
    sources = lengths.sources(
        max(settings.batch_sizes),
        checkpoint.model.config.vocab_size,
        None if prompted else checkpoint.eos,
        settings.seed,
    )
    starts: dict[str, _Start] = {"sequential": None}
    if lengths.keys:
        starts["fields together"] = "together"
        if prompted:
            starts["blind rows"] = "blind"
    else:
        starts |= {f"Δt = {delay}": delay for delay in settings.delays}
    entries = []
    for decoder, (name, start) in product(decoders, starts.items()):
        runner = EngineRunner(decoder, {"delay": start}, lengths)
        in_dtype = f"{name}, {runner.settings['dtype']}"
        entry = Entry(
            name=name if decoder is decoders[0] else in_dtype,
            role="pipelined" if start else "baseline",
            runner=runner,
            delay="together" if start == "blind" else start,
            sources=sources,
        )
        entries.append(entry)
    return entries


def _in_words(name: str, checkpoint: Checkpoint) -> str:
    """The model with its size, and whether its weights are fresh."""
    from pipedec_cli.model.engine.native.blocks import Blocks

    weights = {*checkpoint.model.parameters()}
    for module in checkpoint.model.modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, Blocks):
            weights.add(weight)
    parameters = sum(prod(weight.shape) for weight in weights)
    words = f"{name}, {parameters / 1e6:.0f} M parameters"
    if checkpoint.name != name:
        return f"{words}, fresh weights of a {checkpoint.backbone.name}"
    return words


@contextmanager
def loaded(settings: BenchSettings, device: str) -> Iterator[list[Decoder]]:
    """The model in each dtype. Fresh weights are in a temporary folder, so that peers can convert them."""
    import torch

    from pipedec_cli.decoding.decoder import load
    from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings, save_checkpoint
    from pipedec_cli.model.scratch import make_model, shape_of, train_tokenizer
    from pipedec_cli.model.size import require_room

    name = settings.model
    with TemporaryDirectory(prefix="pipedec-bench-") as folder:
        shape = shape_of(name)
        if shape is not None:
            log.info(f"making {name} with fresh weights")
            torch.manual_seed(settings.seed)
            # Nothing is read, so the tokenizer needs few words; the vocabulary has its
            # whole size.
            words = ["Lengths are forced, and sources are random."]
            segmentation = Segmentation("phrase", (";",), "; ")
            fresh = Checkpoint(
                make_model(shape, shape.vocabulary),
                train_tokenizer(words, shape.vocabulary),
                MethodSettings("sequential", "any", segmentation),
                name,
            )
            save_checkpoint(fresh, Path(folder))
            name = folder
        decoders = []
        # Only transformers runs the loaded model itself, which has no blocks.
        has_peer = "transformers" in settings.compare
        tokens = max(settings.batch_sizes) * (settings.source or _SOURCE)
        for dtype in settings.dtypes:
            if device == "cpu":
                require_room(name, dtype, tokens)
            consume = dtype == "stored" or not has_peer
            decoders.append(load(name, dtype=dtype, device=device, consume=consume))
        warn_uncompiled(decoders[0].checkpoint)
        yield decoders


def _chosen_lengths(settings: BenchSettings) -> Lengths:
    """The lengths that the settings give or name; a UserError if they are neither."""
    given = [settings.subsequences, settings.tokens]
    both = [number for number in given if number is not None]
    is_fields = settings.shape == "fields"
    is_named = bool(settings.shape) and not is_fields
    if len(both) == 1 or (both and is_named):
        raise UserError(
            "lengths are given either as --shape, or as --subsequences and --tokens",
            todo="for example `--shape pubmed`, or `--subsequences 8 --tokens 12`",
        )
    if is_fields:
        if settings.asked("delays"):
            what = "fields start all at once: --delays does not apply"
            raise UserError(what, todo="leave --delays out")
        return Lengths.of_fields(settings.source or _FIELDS_SOURCE, *both)
    source = settings.source or _SOURCE
    if not both:
        return Lengths.of_dataset(settings.shape or "wikihowqa", source)
    subsequences, tokens = both
    return Lengths.even(source, subsequences, subsequences * tokens)
