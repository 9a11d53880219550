"""The score of a model in training: texts for records of the dev set, generated as `pipedec generate` does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from pipedec_cli.data.records import Generated, Record

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint
    from pipedec_cli.training.encoded import Encoded


class DevScorer:
    """Generates texts for the records with the present weights, and scores them. `examples` are the records in token ids.

    `doubts` are the reasons why the best texts so far are useless.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        records: Sequence[Record],
        examples: Sequence[Encoded],
    ) -> None:
        from pipedec_cli.metrics.scoring import dev_measure

        assert checkpoint.settings is not None, "it has them before it is trained"
        self.checkpoint = checkpoint
        self.records = records
        self.measure = dev_measure(checkpoint.settings.segmentation.level)
        lengths = [sum(len(text) for text in example.texts) for example in examples]
        # A bound on the time that a model takes that has not learnt yet to end its
        # texts.
        self.max_tokens = 2 * max(lengths) + 1
        self.longest_source = max(len(example.source) for example in examples)
        self.best = -1.0
        self.doubts = list[str]()

    def __call__(self) -> float:
        """The score of the texts that the present weights write.

        If it is the best so far, notes why these texts are of no use yet: such as that
        they are as good when texts and sources are exchanged.
        """
        from pipedec_cli.metrics.scoring import score_predictions
        from pipedec_cli.metrics.useless import as_good_when_exchanged

        scores = score_predictions(self._generate(), self.measure)
        score = scores.values[self.measure.primary] or 0.0
        if score > self.best:
            self.best = score
            fault = as_good_when_exchanged(scores)
            self.doubts = [fault.words] if fault else []
        return score

    def _generate(self) -> list[Generated]:
        """The texts that the present weights write for the records, each with its record."""
        from pipedec_cli.decoding.batch_size import choose_batch_size
        from pipedec_cli.decoding.decoder import Decoder
        from pipedec_cli.model.lora import merged

        model = self.checkpoint.model
        model.eval()
        with merged(model):
            size = choose_batch_size(model, self.longest_source, len(self.records))
            # A new decoder, since the weights have changed.
            decoder = Decoder(self.checkpoint, batch_size=size)
            sequential = decoder.settings.decoder == "sequential"
            method = decoder.method(max_tokens=self.max_tokens if sequential else None)
            sources = [record.source for record in self.records]
            texts = [*decoder.texts(sources, method)]
        model.train()
        return [
            structs.replace(text, record=record)
            for text, record in zip(texts, self.records, strict=True)
        ]
