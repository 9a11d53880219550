"""What `extract` and `decide` have in common: a model, loaded now or before, and results of texts as they are read."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

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


def settings_for(
    model: str | Path | Decoder, asked: Mapping[str, str | None]
) -> GenerateSettings:
    """The settings of `generate` that say the same. A `UserError` for a value that one cannot have."""
    from pipedec_cli.decoding.decoder import Decoder

    given = {name: value for name, value in asked.items() if value is not None}
    if not isinstance(model, Decoder):
        given["model"] = str(model)
    elif {"dtype", "device"} & given.keys():
        what = "dtype and device are for a model that is loaded now"
        raise UserError(what, todo="give them to load")
    values: dict[str, Any] = {}
    for setting in settings_of(GenerateSettings):
        if setting.name in given:
            try:
                values[setting.name] = setting.parse(given[setting.name])
            except ValueError as error:
                raise UserError(f"{setting.name}: {error}") from None
    return GenerateSettings(text=("",), confidence=True, **values)


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
) -> Iterator[tuple[Generated | Mapping[str, Any], str]]:
    """Each result with its text, in order. At the end it warns of the texts as `generate` does.

    If it is `partial`, the values so far of the text whose result is due come before
    it, each time that there are more.
    """
    waiting = deque[str]()

    def read() -> Iterator[str]:
        for text in texts:
            waiting.append(mended_text(text))
            yield waiting[-1]

    checkpoint = decoder.checkpoint
    unknown = checkpoint.tokenizer.unk_token_id
    tally = Tally()
    began = time.perf_counter()
    for result in _events(decoder, method, read(), batch_size, partial=partial):
        if not isinstance(result, Generated):
            yield result, waiting[0]
            continue
        tally.add(result, unknown, checkpoint.positions)
        yield result, waiting.popleft()
    tally.seconds = time.perf_counter() - began
    tally.report({"max_source_tokens": decoder.text.max_source_tokens})


def _events(
    decoder: Decoder,
    method: Method,
    texts: Iterable[str],
    batch_size: int | None,
    *,
    partial: bool,
) -> Iterator[Generated | Mapping[str, Any]]:
    """The results in order and, if it is `partial`, what is final of the one that is due."""
    from pipedec_cli.pipeline.decode import Admitted, Stepped

    reader = decoder.reader
    if not partial or not isinstance(reader, ObjectReader):
        yield from decoder.texts(texts, method, batch_size)
        return
    due = 0
    begun: dict[int, ObjectSoFar] = {}
    for event in decoder.run(texts, method, batch_size):
        if isinstance(event, Admitted):
            begun[event.example] = ObjectSoFar(reader, event.grid)
        elif isinstance(event, Generated):
            yield event
            del begun[due]
            due += 1
        elif isinstance(event, Stepped) and event.example == due:
            so_far = begun[due]
            before = so_far.values
            if so_far.update() and so_far.values != before:
                yield so_far.values
