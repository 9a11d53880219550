"""The dev score of a model that is being trained: texts are generated and scored at each evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from pipedec_cli.data.records import Record

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint
    from pipedec_cli.model.training.collate import Encoded


def dev_scorer(
    checkpoint: Checkpoint, records: Sequence[Record], examples: Sequence[Encoded]
) -> Callable[[], float] | None:
    """A function that generates texts for dev records, as `pipedec generate` does, and scores them.

    The examples are the same records in token ids.
    """
    from pipedec_cli.evaluate.scoring import dev_measure, score_predictions
    from pipedec_cli.model.batch_size import choose_batch_size
    from pipedec_cli.model.decoder import Decoder
    from pipedec_cli.model.training.lora import merged

    if not records or checkpoint.settings is None:
        return None
    measure = dev_measure(checkpoint.settings.segmentation.level)
    # A bound on the time that a model takes that has not learnt yet to end its texts.
    longest = 2 * max(sum(map(len, example.texts)) for example in examples) + 1
    source = max(len(example.source) for example in examples)

    def score_dev() -> float:
        checkpoint.model.eval()
        with merged(checkpoint.model):
            size = choose_batch_size(checkpoint.model, source, len(records))
            decoder = Decoder(checkpoint, batch_size=size)  # a new one, since the weights have changed
            method = decoder.method(max_tokens=longest if decoder.settings.decoder == "sequential" else None)
            made = [*decoder.texts([record.source for record in records], method)]
        pairs = zip(made, records, strict=True)
        _, scores = score_predictions((structs.replace(one, record=record) for one, record in pairs), measure)
        checkpoint.model.train()
        return scores.values[measure.primary] or 0.0

    return score_dev
