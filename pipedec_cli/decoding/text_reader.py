"""Reads texts in finished grids."""

from dataclasses import dataclass

from pipedec_cli.data.records import Generated
from pipedec_cli.model.checkpoint import PLAIN, Checkpoint
from pipedec_cli.model.text import TextCodec
from pipedec_cli.objects.codec import row_text
from pipedec_cli.pipeline.decode import Finished


@dataclass(frozen=True, slots=True)
class TextReader:
    """Reads texts in finished grids."""

    checkpoint: Checkpoint
    text: TextCodec

    def read(self, end: Finished) -> Generated:
        """The result of an example whose grid is finished: its text, and the subsequences that make it.

        What it cost (steps, tokens, seconds) is not filled in.
        """
        texts = [row_text(self.text, row) for row in end.grid.subsequences]
        segments = tuple(filter(None, texts))
        settings = self.checkpoint.settings or PLAIN
        segmenter = self.checkpoint.segmenter
        if settings.decoder == "sequential" and segmenter is not None:
            # The whole target came as one string. It is cut as the training targets
            # were.
            text = "".join(segments)
            return Generated(text=text, segments=segmenter.cut(text))
        text = settings.segmentation.joiner.join(segments)
        return Generated(text=text, segments=segments)
