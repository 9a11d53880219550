"""What a decoder of `deciding` says of texts."""

from collections.abc import Iterator, Sequence

from pipedec_cli.decoding.decisions import Decision, decisions_of
from pipedec_cli.decoding.decoder import Decoder


def decisions_about(
    decoder: Decoder, texts: Sequence[str], batch_size: int | None = None
) -> Iterator[tuple[Decision, ...]]:
    """The answers to its questions about each text, in their order."""
    results = decoder.texts(texts, decoder.method(), batch_size)
    for generated, text in zip(results, texts, strict=True):
        yield decisions_of(decoder, generated, text)
