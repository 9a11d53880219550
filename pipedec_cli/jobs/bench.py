"""`pipedec bench`: a comparison on made-up lengths, to see without training what the method can give on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from pipedec_cli.compare.comparison import Bench, Sample
from pipedec_cli.compare.entry import Entry, Role
from pipedec_cli.compare.peers import require_gguf
from pipedec_cli.compare.runners import EXACT, EngineRunner, Lengths
from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.records import Segmentation
from pipedec_cli.data.writing import manifest
from pipedec_cli.jobs.events import Listen, silent
from pipedec_cli.jobs.loading import warn_uncompiled
from pipedec_cli.jobs.measuring import measure, parse_compared
from pipedec_cli.jobs.report_settings import REPEATS, BenchSettings

if TYPE_CHECKING:
    from pipedec_cli.decoding.decoder import Decoder

#: Source tokens of the paper's shapes, and of fields.
_SOURCE, _FIELDS_SOURCE = 512, 300


def bench(
    settings: BenchSettings, listen: Listen = silent
) -> tuple[Bench, dict[str, Any]]:
    """Time decoders on forced lengths, without training. Returns the comparison, and its plain values with a manifest."""
    peers, drafts = parse_compared(settings, refused=EXACT)
    if drafts:
        what = "--compare: the speed of exact mode depends on the text, and here texts mean nothing"
        raise UserError(
            what, todo="run `pipedec report --compare exact` on a trained model"
        )
    require_gguf(peers, settings.model, "--model", settings.peer_gguf)
    lengths = _chosen_lengths(settings)
    log.info(f"loading {settings.model} …")

    from pipedec_cli.model.arguments import choose_device

    size = max(settings.batch_sizes)
    with loaded(settings, str(choose_device(settings.device))) as decoders:
        first = decoders[0].checkpoint
        if first.places is not None and lengths.source > first.places:
            what = f"sources of {lengths.source:,} tokens, and {settings.model} has {first.places:,} places for them"
            raise UserError(what, todo=f"give --source {first.places} or less")
        # The sequential decoder and the pipelined ones, in each dtype, on the same
        # random sources. Of fields a decoder-only model has blind rows as well.
        prompted, vocabulary = first.backbone.prompted, first.model.config.vocab_size
        sources = lengths.sources(
            size, vocabulary, None if prompted else first.eos, settings.seed
        )
        ways: list[tuple[str, int | Literal["together", "blind"] | None]] = [
            ("sequential", None)
        ]
        ways += (
            [("fields together", "together")]
            if lengths.keys
            else ((f"Δt = {n}", n) for n in settings.delays)
        )
        ways += [("blind rows", "blind")] if lengths.keys and prompted else []
        planned = []
        for decoder, (name, delay) in product(decoders, ways):
            runner = EngineRunner(decoder, {"delay": delay}, lengths)
            role: Role = "pipelined" if delay else "baseline"
            full = (
                name
                if decoder is decoders[0]
                else f"{name}, {runner.settings['dtype']}"
            )
            start = "together" if delay == "blind" else delay
            planned.append(
                Entry(name=full, role=role, runner=runner, delay=start, sources=sources)
            )
        log.info(f"forced lengths: {lengths.line}")
        longest = lengths.tokens + 1  # our decoders make an <eos>, too
        measured, conditions = measure(
            settings, planned, peers, first, longest, listen, forced=True
        )
        millions = (
            sum(parameter.numel() for parameter in first.model.parameters()) / 1e6
        )
        fresh = (
            f", fresh weights of a {first.backbone.name}"
            if first.name != settings.model
            else ""
        )
    made = Bench(
        entries=tuple(measured),
        conditions=conditions,
        sample=Sample(size, size, REPEATS),
        model=f"{settings.model}, {millions:.0f} M parameters{fresh}",
        lengths=lengths,
    )
    resolved = {"lengths": asdict(lengths), "peers": peers, **settings.recorded}
    return made, made.values() | {"manifest": manifest(resolved)}


@contextmanager
def loaded(settings: BenchSettings, device: str) -> Iterator[list[Decoder]]:
    """The model in each dtype. Fresh weights are in a temporary folder, so that peers can convert them."""
    import torch

    from pipedec_cli.decoding.decoder import load
    from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings, save_checkpoint
    from pipedec_cli.model.scratch import make_model, shape_of, train_tokenizer

    name = settings.model
    with TemporaryDirectory(prefix="pipedec-bench-") as folder:
        if (shape := shape_of(name)) is not None:
            log.info(f"making {name} with fresh weights")
            torch.manual_seed(settings.seed)
            # Nothing is read, so the tokenizer needs few words; the vocabulary has its
            # whole size.
            tokenizer = train_tokenizer(
                ["Lengths are forced, and sources are random."], shape.vocabulary
            )
            method = MethodSettings(
                "sequential", "any", Segmentation("phrase", (";",), "; ")
            )
            made_up = Checkpoint(
                make_model(shape, shape.vocabulary), tokenizer, method, name
            )
            save_checkpoint(made_up, Path(folder))
            name = folder
        decoders = [
            load(name, dtype=dtype, device=device, consume=False)
            for dtype in settings.dtypes
        ]
        warn_uncompiled(decoders[0].checkpoint)
        yield decoders


def _chosen_lengths(settings: BenchSettings) -> Lengths:
    subsequences, tokens, is_fields = (
        settings.subsequences,
        settings.tokens,
        settings.shape == "fields",
    )
    is_given = subsequences is not None
    if is_given != (tokens is not None) or (
        settings.shape and is_given and not is_fields
    ):
        what = "lengths are given either as --shape, or as --subsequences and --tokens"
        raise UserError(
            what, todo="for example `--shape pubmed`, or `--subsequences 8 --tokens 12`"
        )
    if is_fields:
        if settings.asked("delays"):
            raise UserError(
                "fields start all at once: --delays does not apply",
                todo="leave --delays out",
            )
        given = (subsequences, tokens) if subsequences and tokens else ()
        return Lengths.of_fields(settings.source or _FIELDS_SOURCE, *given)
    source = settings.source or _SOURCE
    if subsequences is None or tokens is None:
        return Lengths.of_dataset(settings.shape or "wikihowqa", source)
    return Lengths.even(source, subsequences, subsequences * tokens)
