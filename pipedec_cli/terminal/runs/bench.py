"""What `pipedec bench` does: decoders side by side on forced lengths, without training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pipedec_cli.data.records import Segmentation
from pipedec_cli.data.writing import manifest, to_json, write_json
from pipedec_cli.evaluate.bandwidth import MemoryProbe
from pipedec_cli.evaluate.bench import Bench, BenchEntry, Kind
from pipedec_cli.evaluate.contenders import DecodingChoice, EngineDecoder
from pipedec_cli.evaluate.forced import Lengths
from pipedec_cli.evaluate.machine import this_machine, versions
from pipedec_cli.evaluate.peers import Absent, PeerName, make_peer
from pipedec_cli.evaluate.step_speed import StepSpeed, time_steps
from pipedec_cli.evaluate.timing import Clock, Contestant, TimedDecoder, device_clock, pause
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings, load_checkpoint, save_checkpoint
from pipedec_cli.model.decoder import Decoder
from pipedec_cli.model.device import choose_device, choose_dtype
from pipedec_cli.model.scratch import SHAPES, make_model, train_tokenizer
from pipedec_cli.terminal.console import Talk, make_console, many, write_stdout
from pipedec_cli.terminal.predicting import announce_compiling
from pipedec_cli.terminal.progress import stage
from pipedec_cli.terminal.runs.report_measurements import time_all, watched_for_others, weigh_all
from pipedec_cli.terminal.views.bench import show


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What was asked for.

    Attributes:
        lengths: what is forced.
        model: a scratch shape, a folder or a hub name.
        peers: who is compared with, beside our sequential decoder.
        delays: Δt to try.
        dtypes: of our weights; the peers take the first.
        batch_sizes: examples in flight.
        rows: rows of a step, for the steps by themselves; () leaves them out.
        repeats: how often everything is timed.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        memory: whether to measure each decoder's peak.
        seed: of fresh weights and random sources.
    """

    lengths: Lengths
    model: str = "scratch-base"
    peers: tuple[PeerName, ...] = ()
    delays: tuple[int, ...] = (1,)
    dtypes: tuple[str, ...] = ("float32",)
    batch_sizes: tuple[int, ...] = (1,)
    rows: tuple[int, ...] = (1, 4, 8, 16)
    repeats: int = 3
    device: str = "auto"
    memory: bool = False
    seed: int = 0


def run_bench(request: BenchRequest, *, out: Path | None, talk: Talk, as_json: bool) -> None:
    """Measure as requested and print it.

    Args:
        request: what to measure.
        out: a JSON file to keep it in.
        talk: where to say what happens.
        as_json: print JSON instead of the tables.

    Raises:
        UserError: the model cannot be loaded.
    """
    device = str(choose_device(request.device))
    with _checkpoints(request, device, talk) as loaded, TemporaryDirectory(prefix="pipedec-peers-") as folder:
        bench = _measure(request, loaded, Path(folder), device, talk)
    content = bench.as_json() | {"manifest": manifest(asdict(request), inputs=[])}
    if out is not None:
        write_json(out, content)
        talk.say(f"saved {out}")
    if as_json:
        write_stdout(to_json(content, indent=2) + "\n")
    else:
        show(make_console(stderr=False), bench)


@contextmanager
def _checkpoints(request: BenchRequest, device: str, talk: Talk) -> Iterator[list[Checkpoint]]:
    """The model in each dtype; fresh weights lie in a folder while they are needed, so that peers can convert them."""
    with TemporaryDirectory(prefix="pipedec-bench-") as folder:
        name = request.model
        if name in SHAPES:
            talk.say(f"making {name} with fresh weights")
            name = folder
            _save_fresh(request.model, Path(folder), request.seed)
        load = partial(load_checkpoint, name, device=device)
        yield [load(dtype=choose_dtype(dtype, choose_device(device))) for dtype in request.dtypes]


def _save_fresh(shape: str, folder: Path, seed: int) -> None:
    """Fresh weights of a shape with its whole vocabulary; the tokenizer knows few words, since nothing is read."""
    import torch

    torch.manual_seed(seed)
    sizes = SHAPES[shape]
    tokenizer = train_tokenizer(["Lengths are forced, and sources are random."], sizes.vocabulary)
    settings = MethodSettings("sequential", "any", Segmentation("phrase", (";",), "; "))
    save_checkpoint(Checkpoint(make_model(sizes, sizes.vocabulary), tokenizer, settings, shape), folder)


def _measure(
    request: BenchRequest, loaded: Sequence[Checkpoint], folder: Path, device: str, talk: Talk
) -> Bench:
    first, lengths = loaded[0], request.lengths
    clock = device_clock(device)
    probe = MemoryProbe(clock, device=device)
    announce_compiling(first.device.type, talk)
    decoders, absent = _decoders(request, loaded, folder)
    for peer in absent:
        talk.warn(f"{peer.name} is absent: {peer.why}")
    count, vocabulary = max(request.batch_sizes), first.model.config.vocab_size
    sources = lengths.sources(count, vocabulary, first.eos, request.seed)
    talk.say(f"forced lengths: {lengths.line}")

    def rest() -> None:
        pause()
        probe.measure()

    def contestants(size: int) -> list[Contestant]:
        return [Contestant(decoder, sources[:size]) for decoder in decoders]

    with watched_for_others(talk) as others:
        timings = time_all(contestants, request.batch_sizes, request.repeats, device, talk, rest)
        steps = _time_steps(request, decoders, sources[0], probe, clock, talk)
    size = request.batch_sizes[0]
    memory = weigh_all(contestants(size), size, talk) if request.memory else {}
    return Bench(
        model=_described(request.model, first),
        lengths=lengths,
        entries=tuple(
            BenchEntry(
                name=decoder.name,
                kind=_kind(decoder),
                dtype=decoder.settings["dtype"],
                settings=decoder.settings,
                timings=timings[decoder.name],
                memory=memory.get(decoder.name),
            )
            for decoder in decoders
        ),
        steps=tuple(steps),
        bandwidth=tuple(probe.readings),
        reader=probe.reader,
        absent=tuple(absent),
        repeats=request.repeats,
        device=device,
        machine=this_machine(device),
        versions=versions(),
        disturbed=others.words,
    )


def _decoders(
    request: BenchRequest, loaded: Sequence[Checkpoint], folder: Path
) -> tuple[list[TimedDecoder], list[Absent]]:
    """Ours in every dtype, then the peers that are there; the weights of a dtype are laid out once."""
    decoders: list[TimedDecoder] = []
    for place, decoder in enumerate(map(Decoder, loaded)):
        suffix = f", {request.dtypes[place]}" if place else ""
        for delay in (None, *request.delays):
            name = "sequential" if delay is None else f"Δt = {delay}"
            made = EngineDecoder(
                name + suffix,
                decoder,
                DecodingChoice(delay=delay),
                lengths=request.lengths,
            )
            decoders.append(made)
    absent = []
    for name in request.peers:
        # One more than the text has: ours make an <eos> too.
        peer = make_peer(name, loaded[0], folder / name, request.lengths.tokens + 1, exactly=True)
        if isinstance(peer, Absent):
            absent.append(peer)
        else:
            decoders.append(peer)
    return decoders, absent


def _kind(decoder: TimedDecoder) -> Kind:
    if not isinstance(decoder, EngineDecoder):
        return "peer"
    return "sequential" if decoder.choice.delay is None else "pipelined"


def _time_steps(
    request: BenchRequest,
    decoders: Sequence[TimedDecoder],
    source: Sequence[int],
    probe: MemoryProbe,
    clock: Clock,
    talk: Talk,
) -> list[StepSpeed]:
    ours = [
        (decoder.checkpoint.model, decoder.decoder.weights)
        for decoder in decoders
        if isinstance(decoder, EngineDecoder) and decoder.choice.delay is None
    ]
    if not request.rows:
        return []
    talk.say(
        f"timing single steps of {', '.join(map(str, request.rows))} rows: {many(request.repeats, 'repeat')}"
    )
    total = len(ours) * len(request.rows) * (1 + request.repeats)
    with stage(talk, "timing steps", total) as advance:
        return time_steps(
            ours,
            request.rows,
            source,
            probe,
            repeats=request.repeats,
            clock=clock,
            rest=pause,
            on_repeat=advance,
        )


def _described(name: str, checkpoint: Checkpoint) -> str:
    """The model's name and size."""
    millions = sum(parameter.numel() for parameter in checkpoint.model.parameters()) / 1e6
    return f"{name}, {millions:.0f} M parameters" + (", fresh weights" if name in SHAPES else "")
