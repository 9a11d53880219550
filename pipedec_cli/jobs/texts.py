"""What `extract` and `decide` have in common: a model, loaded now or before, and results of texts as they are read."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import mended_text
from pipedec_cli.data.records import Generated
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.loading import load_decoder
from pipedec_cli.jobs.settings import settings_of
from pipedec_cli.jobs.tally import Tally
from pipedec_cli.objects.reader import ObjectReader
from pipedec_cli.objects.so_far import ObjectSoFar

if TYPE_CHECKING:
    from pathlib import Path

    from pipedec_cli.decoding.decoder import Decoder
    from pipedec_cli.pipeline.grid import Method


class Result(NamedTuple):
    """What was generated from a text. One that is not whole has the values so far."""

    text: str
    generated: Generated
    is_whole: bool = True


def settings_for(model: str | Path | Decoder, **asked: str | None) -> GenerateSettings:
    """The settings of `generate` that say the same. A `UserError` for a value that one cannot have."""
    from pipedec_cli.decoding.decoder import Decoder

    if not isinstance(model, Decoder):
        asked["model"] = str(model)
    elif asked["dtype"] or asked["device"]:
        what = "dtype and device are for a model that is loaded now"
        raise UserError(what, todo="give them to load")
    values: dict[str, Any] = {"confidence": True}
    for setting in settings_of(GenerateSettings):
        value = asked.get(setting.name)
        if value is not None:
            try:
                values[setting.name] = setting.parse(value)
            except ValueError as error:
                raise UserError(f"{setting.name}: {error}") from None
    return GenerateSettings(**values)


def taken(model: str | Path | Decoder, settings: GenerateSettings) -> Decoder:
    """The model, loaded as the settings say unless it is loaded."""
    from pipedec_cli.decoding.decoder import Decoder

    return model if isinstance(model, Decoder) else load_decoder(settings)


def results_of(
    decoder: Decoder,
    method: Method,
    texts: Iterable[str],
    batch_size: int | None,
    *,
    partial: bool = False,
) -> Iterator[Result]:
    """The result of each text, in order. At the end it warns of the texts as `generate` does.

    If it is `partial`, the values so far of the text whose result is due come before
    it, each time that there are more.
    """
    from pipedec_cli.pipeline.decode import Admitted, Stepped

    reader = decoder.reader
    assert isinstance(reader, ObjectReader), "blind rows write objects"
    waiting = deque[str]()

    def read() -> Iterator[str]:
        for text in texts:
            waiting.append(mended_text(text))
            yield waiting[-1]

    checkpoint = decoder.checkpoint
    unknown = checkpoint.tokenizer.unk_token_id
    tally = Tally()
    began = time.perf_counter()
    begun: dict[int, ObjectSoFar] = {}
    for event in decoder.run(read(), method, batch_size):
        if isinstance(event, Generated):
            begun.pop(event.index, None)
            tally.add(event, unknown, checkpoint.positions)
            yield Result(waiting.popleft(), event)
        elif partial and isinstance(event, Admitted):
            begun[event.example] = ObjectSoFar(reader, event.grid)
        elif isinstance(event, Stepped) and event.example == tally.examples and begun:
            so_far = begun[event.example]
            before = so_far.values
            if so_far.update() and so_far.values != before:
                known = Generated(text=so_far.text, segments=(), fields=so_far.values)
                yield Result(waiting[0], known, is_whole=False)
    tally.seconds = time.perf_counter() - began
    tally.report({"max_source_tokens": decoder.text.max_source_tokens})
