"""A run: one decoder on some records, with every setting resolved, before anything is generated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from msgspec import to_builtins

from pipedec_cli.data.inputs import Inputs
from pipedec_cli.data.reading import real
from pipedec_cli.data.wording import many
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.data.writing import manifest
from pipedec_cli.jobs.generate_settings import RunSettings
from pipedec_cli.jobs.loading import WORKSPACE_MODELS, is_pipelined
from pipedec_cli.model.batch_size import choose_batch_size
from pipedec_cli.model.blind import BlindDecoder
from pipedec_cli.model.chunks import Chunks
from pipedec_cli.model.decoder import Decoder
from pipedec_cli.model.exact import ExactDecoder
from pipedec_cli.pipeline.grid import Limits, Method
from pipedec_cli.pipeline.schedule import Fixed, Listed, Schedule, Together, Whole


@dataclass(frozen=True, kw_only=True)
class Run:
    """What is decoded, by what and how; inputs and decoder may serve several runs. `path` tells what is unusual."""

    decoder: Decoder
    inputs: Inputs
    method: Method
    batch_size: int
    is_auto: bool  # whether the batch size was chosen for these inputs
    path: Path  # the file in the workspace
    used: dict[str, Any]  # the resolved settings, as the manifest has them
    asked: frozenset[str]  # of `trace` and `confidence` what is asked for, also behind lines without it
    live: bool
    live_speed: float | None
    chunks: Chunks | None  # how long sources are cut, if they are

    @property
    def exact(self) -> ExactDecoder | None:
        """The decoder, in exact mode."""
        return self.decoder if isinstance(self.decoder, ExactDecoder) else None

    @property
    def more(self) -> dict[str, bool]:
        """What lines hold besides: the grid, how sure values are, and where they stand."""
        return {name: bool(self.used.get(name)) for name in ("trace", "confidence", "spans")}

    def as_begun(self, begun: Mapping[str, Any]) -> Self:
        """The run as one with these settings goes on: with grid and confidences if that has them, unless they are asked for."""
        trace, sure = (begun.get(name) is True or name in self.asked for name in ("trace", "confidence"))
        used = {name: value for name, value in self.used.items() if name != "confidence"}
        used |= {"trace": trace, **({"confidence": True} if sure else {})}
        method = replace(self.method, confident=self.method.confident or sure)
        return replace(self, used=used, method=method)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What makes the lines: it hashes the weights, so a run that writes no file never asks for it."""
        decoder, inputs, exact = self.decoder, self.inputs, self.exact
        checkpoint = decoder.checkpoint
        made: dict[str, Any] = {
            "examples": inputs.count,
            "segmentation": to_builtins(decoder.settings.segmentation) if checkpoint.settings else None,
            "model": {"name": checkpoint.name, "sha256": decoder.sha256},
            "data": {"name": inputs.file["path"], "sha256": inputs.sha256},
            **manifest(self.used),
            "inputs": [inputs.file],
        }
        if inputs.shard:
            made["shard"] = {**asdict(inputs.shard), "records": inputs.total}
        if exact and exact.drafter:
            made["drafter"] = {"name": exact.drafter.checkpoint.name, "sha256": exact.drafter.sha256}
        return made

    @property
    def labels(self) -> Sequence[str]:
        """The keys of the rows, where each row is a field."""
        fields = None if self.exact else self.decoder.fields
        return [field.name for field in fields.fields] if fields and self.method.openings else ()

    @property
    def description(self) -> str:
        """The method in words, such as ``Δt = 2, empty rows retry``."""
        if self.exact and not self.exact.drafter:
            return f"exact, drafted by {self.exact.kind}"
        method = self.method
        if isinstance(method.schedule, Whole):
            return "sequential decoder"
        if isinstance(method.schedule, Together):
            free = ", unconstrained" if self.decoder.unconstrained else ""
            what = "blind row" if method.blind else "field"
            words = f"{many(len(method.openings), what)} at a time{free}"
            words += (
                f", items: {_start(method.schedule.between)}" if isinstance(method.schedule, Listed) else ""
            )
        else:
            words = _start(method.schedule)
            words += f", empty rows {method.empty_rows}"
            words += ", stop on repeat" if method.stop_on_repeat else ""
            words += f", min start prob {method.min_start_prob:g}" if method.min_start_prob else ""
        return f"exact, drafted by {words}" if self.exact else words


def _start(schedule: Schedule) -> str:
    return f"Δt = {schedule.delay}" if isinstance(schedule, Fixed) else "waiting schedule"


def method_of(settings: RunSettings, decoder: Decoder, *, usual: bool = False) -> Method:
    """The decoding method of the settings, with their limits or the `usual` ones."""
    how = settings.some("empty_rows", "stop_on_repeat", "min_start_prob", "force")
    limits = {} if usual else settings.some("time_max", "sub_max", "max_tokens")
    method = decoder.method(settings.delay, **how, **limits)
    # Values of chunks are chosen by their confidence.
    return replace(method, confident=method.confident or settings.confidence or bool(settings.chunk))


def _fitting(settings: RunSettings, decoder: Decoder) -> RunSettings:
    """The settings without those that a config file or a recipe gives for a pipelined decoder at a fixed delay."""
    of_grids = {"time_max", "sub_max"} if settings.delay == "wait" else set[str]()
    if isinstance(decoder, BlindDecoder):
        of_grids = {"delay", "empty_rows", "stop_on_repeat", "min_start_prob", "sub_max"}
    elif not is_pipelined(decoder):
        of_grids = {"delay", "time_max", "sub_max"}
    changes: dict[str, Any] = dict.fromkeys(of_grids - settings.typed)
    return replace(settings, **changes)


def plan_run(settings: RunSettings, decoder: Decoder, inputs: Inputs) -> Run:
    """Resolve every setting; a `UserError` if the model was not trained for what is asked."""
    settings = _fitting(settings, decoder)
    method, usual = method_of(settings, decoder), method_of(settings, decoder, usual=True)
    live = settings.live or bool(settings.live_speed)
    decoder.text.source("")  # raises the error of a prompt that is too long
    chunks = Chunks(decoder, settings.chunk) if settings.chunk else None
    batch_size, is_auto = settings.batch_size, settings.batch_size == "auto"
    if batch_size == "auto":
        longest = min(inputs.longest, settings.chunk or inputs.longest)
        tokens = min(decoder.text.max_source_tokens, longest + decoder.text.longest_around)
        model = decoder.checkpoint.model
        batch_size = 1 if live else choose_batch_size(model, tokens, inputs.count)
    draft = decoder.kind if isinstance(decoder, ExactDecoder) else None
    name = _name(settings, method, usual.limits, draft)
    if isinstance(decoder, BlindDecoder):  # other questions have another file
        asked = Path(settings.schema).stem if settings.schema else "fields" if decoder.rows.fields else "ask"
        kind = "one-row" if settings.one_row else "blind"
        name = name.replace("blind", f"{kind}-{_plain(asked)}-{decoder.described['sha256'][:6]}", 1)
    return Run(
        decoder=decoder,
        inputs=inputs,
        method=method,
        batch_size=batch_size,
        is_auto=is_auto,
        path=settings.place.generations(name),
        used=_used(settings, decoder, inputs, method, batch_size),
        asked=frozenset({"trace"} if settings.trace else ()) | (settings.typed & {"confidence"}),
        live=live,
        live_speed=settings.live_speed,
        chunks=chunks,
    )


def _used(
    settings: RunSettings, decoder: Decoder, inputs: Inputs, method: Method, batch_size: int
) -> dict[str, Any]:
    """All settings, resolved."""
    import torch

    checkpoint, schedule = decoder.checkpoint, method.schedule
    schedule = schedule.between if isinstance(schedule, Listed) else schedule
    exact = decoder if isinstance(decoder, ExactDecoder) else None
    is_sequential = isinstance(schedule, Whole)
    has_starts = not isinstance(method.schedule, Whole | Together)
    delay = schedule.delay if isinstance(schedule, Fixed) else None if is_sequential else schedule.name
    return {
        "decoder": decoder.settings.decoder,
        "delay": delay,
        "empty_rows": method.empty_rows if has_starts else None,
        "stop_on_repeat": method.stop_on_repeat if has_starts else None,
        "min_start_prob": method.min_start_prob or None,
        "exact": exact.kind if exact else None,
        **({"unconstrained": decoder.unconstrained} if decoder.fields else {}),
        **{name: value for name, value in settings.some("confidence", "spans", "chunk").items() if value},
        **asdict(method.limits),
        **decoder.text.described,
        **({"rows": decoder.described} if isinstance(decoder, BlindDecoder) else {}),
        "dtype": settings.dtype,
        "device": checkpoint.device.type,
        "source_field": inputs.names.source,
        "target_field": inputs.names.target,
        "id_field": inputs.names.id,
        "limit": settings.limit,
        "trace": not (settings.out or settings.to_stdout) if settings.trace is None else settings.trace,
        "batch_size": batch_size,
        "threads": torch.get_num_threads(),
    }


def _name(settings: RunSettings, method: Method, usual: Limits, draft: str | None) -> str:
    """Such as ``pipelined-delay2-stop-first60``. In exact mode the method is that of the `draft`."""
    data = None
    if settings.text:
        data = "text"
    elif settings.data is not None:  # a file's name without its endings, a data set's without its owner
        name = real(settings.data).name
        data = name.removesuffix(".gz").rpartition(".")[0] or name
    kind = "blind" if method.blind else f"pipelined-{method.schedule.name}"
    if isinstance(method.schedule, Whole):
        kind = draft or "sequential"
    limits = asdict(method.limits).items()
    place = Workspace.find(settings.workspace)
    own = {*WORKSPACE_MODELS, *(str(real(place.model(name))) for name in WORKSPACE_MODELS)}
    models = [name for name in (settings.model, settings.exact) if name and not {name, str(real(name))} & own]
    parts = [
        draft and "exact",
        kind,
        settings.shots and f"shots{settings.shots[1]}",
        method.empty_rows if method.empty_rows != "retry" else None,
        "norepeat" if method.stop_on_repeat else None,
        f"minprob{method.min_start_prob:g}" if method.min_start_prob else None,
        *(f"{name.replace('_', '')}{limit}" for name, limit in limits if limit != getattr(usual, name)),
        "unconstrained" if settings.unconstrained else None,
        settings.max_source_tokens and f"source{settings.max_source_tokens}",
        settings.chunk and f"chunk{settings.chunk}",
        settings.dtype if settings.dtype != "float32" else None,
        *(real(name).name for name in models),
        data,
        settings.split if settings.split != "test" else None,
        settings.limit and f"first{settings.limit}",
    ]
    return _plain("-".join(map(str, filter(None, parts))))


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)
