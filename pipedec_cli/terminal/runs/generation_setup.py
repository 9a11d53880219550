"""The model of a run of `pipedec generate`, ready to decode as asked, and every setting resolved."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import Inputs
from pipedec_cli.data.records import DecoderKind, Delay
from pipedec_cli.data.workspace import SEGMENTATION_FILE, Workspace, load_segmenter
from pipedec_cli.data.writing import manifest
from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.model.decoder import Decoder, load
from pipedec_cli.model.device import choose_batch_size
from pipedec_cli.model.steps.operators import can_prepack
from pipedec_cli.pipeline.decode import Method
from pipedec_cli.pipeline.schedule import Fixed, Waiting, Whole
from pipedec_cli.terminal.console import Talk, many
from pipedec_cli.terminal.runs.generation_request import GenerateRequest, generation_name
from pipedec_cli.terminal.views.generation import describe_method


@dataclass(frozen=True)
class Setup:
    """A run that could begin.

    Attributes:
        decoder: the loaded model.
        method: how to decode.
        batch_size: examples in flight at once.
        max_source_tokens: longer sources are cut to this many.
        name: what a file of its predictions is called.
        manifest: what it is, to be saved beside its predictions.
    """

    decoder: Decoder
    method: Method
    batch_size: int
    max_source_tokens: int
    name: str
    manifest: dict[str, Any]


def set_up(
    request: GenerateRequest, inputs: Inputs, location: str, place: Workspace, talk: Talk, *, live: bool
) -> Setup:
    """Load the model, resolve every setting, and say what was chosen.

    Args:
        request: what was asked for.
        inputs: the sources.
        location: where they come from.
        place: the workspace.
        talk: where to say it.
        live: whether the grid is shown: then examples come one at a time, unless a batch size is asked for.

    Raises:
        UserError: the model is not there, or is not for what was asked.
    """
    import torch

    decoder = load(
        _find_model(request, place),
        dtype=request.dtype,
        device=_without_mps(request.device, talk),
        max_source_tokens=request.max_source_tokens,
    )
    checkpoint = decoder.checkpoint
    if checkpoint.settings is None and (place.data / SEGMENTATION_FILE).exists():
        checkpoint.segmenter = load_segmenter(
            place.data
        )  # a T5 from elsewhere: cut as the targets beside it were
    settings = decoder.settings
    _check_decoder(request, checkpoint, settings.decoder)

    def chosen(**limits: int | None) -> Method:
        return decoder.method(
            request.delay, explore=request.explore, untrained=request.untrained_delay, **limits
        )

    method = chosen(time_max=request.time_max, sub_max=request.sub_max, max_tokens=request.max_tokens)
    longest = request.max_source_tokens or settings.max_source_tokens
    batch_size = request.batch_size
    if batch_size == "auto":
        tokens = min(longest, inputs.longest + len(settings.source_prefix) + 1)
        batch_size = 1 if live else choose_batch_size(checkpoint.model, tokens, inputs.count)
    _say_what_was_chosen(request, checkpoint, method, batch_size, talk)
    resolved = {
        "decoder": settings.decoder,
        "delay": _delay(method),
        "explore": None if isinstance(method.schedule, Whole) else method.explore,
        **asdict(method.limits),
        "source_prefix": settings.source_prefix,
        "max_source_tokens": longest,
        "dtype": request.dtype,
        "device": checkpoint.device.type,
        **{f"{name}_field": value for name, value in asdict(inputs.names).items()},
        "limit": request.limit,
        "trace": request.trace,
        "batch_size": batch_size,
        "threads": torch.get_num_threads(),
    }
    decoder.batch_size = batch_size
    return Setup(
        decoder,
        method,
        batch_size,
        longest,
        generation_name(request, method, usual=chosen().limits),
        {
            "examples": inputs.count,
            "segmentation": msgspec.to_builtins(settings.segmentation) if checkpoint.settings else None,
            "model": {"name": checkpoint.name, "sha256": decoder.sha256},
            "data": {"name": location, "sha256": inputs.sha256},
            **manifest(resolved, inputs=[location]),
        },
    )


def _find_model(request: GenerateRequest, place: Workspace) -> str:
    """The folder or hub name that was given, else the workspace's folder for the decoder."""
    if request.model is not None:
        return request.model
    decoder = request.decoder or "pipelined"
    maker = "pipedec train" if decoder == "pipelined" else "pipedec train --decoder sequential"
    folder = place.require(place.model(decoder), maker)
    if not (folder / "config.json").exists():
        raise UserError(
            "its training has not come to its end", where=str(folder), todo=f"run `{maker} --resume` first"
        )
    return str(folder)


def _check_decoder(request: GenerateRequest, checkpoint: Checkpoint, trained: DecoderKind) -> None:
    if request.decoder in (None, trained):
        return
    if trained == "sequential":
        raise UserError(
            f"{checkpoint.name} is an ordinary T5, not a pipelined decoder",
            todo="leave out --decoder pipelined, or make one with `pipedec train`",
        )
    raise UserError(
        f"{checkpoint.name} was trained as a pipelined decoder",
        todo="--delay sequential is its sequential schedule; `pipedec train --decoder sequential` makes a plain T5",
    )


def _without_mps(device: str, talk: Talk) -> str:
    import torch

    if device == "mps" or (device == "auto" and torch.backends.mps.is_available()):
        talk.say("Apple's GPU is not supported: the CPU is used")
        return "cpu"
    return device


def _delay(method: Method) -> Delay | None:
    if isinstance(method.schedule, Fixed):
        return method.schedule.delay
    return "wait" if isinstance(method.schedule, Waiting) else None


def _say_what_was_chosen(
    request: GenerateRequest, checkpoint: Checkpoint, method: Method, batch_size: int, talk: Talk
) -> None:
    import torch

    on_cpu = checkpoint.device.type == "cpu"
    threads = f" with {many(torch.get_num_threads(), 'thread')}" if on_cpu else ""
    auto = " (auto)" if request.batch_size == "auto" else ""
    talk.say(
        f"{checkpoint.name}: {describe_method(method)}, {request.dtype} on {checkpoint.device}{threads}, "
        f"batch size {batch_size}{auto}"
    )
    settings = checkpoint.settings
    if settings is None:
        talk.say("it was not trained by `pipedec train`: it is decoded as the ordinary T5 that it is")
    elif settings.decoder == "pipelined" and settings.delay not in ("any", _delay(method)):
        talk.warn(
            f"{checkpoint.name} was trained for delay {settings.delay} only: it may take the first later exploration "
            "for the end and drop the rest of the text"
        )
    if on_cpu and request.dtype == "bfloat16" and not can_prepack(torch.bfloat16):
        talk.say("this CPU has no kernels for bfloat16: float32 is likely to be faster")
