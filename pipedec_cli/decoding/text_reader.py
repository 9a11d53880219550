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
        """The text and its subsequences, without what they cost."""
        segments = tuple(
            filter(None, (row_text(self.text, row) for row in end.grid.subsequences))
        )
        settings, segmenter = (
            self.checkpoint.settings or PLAIN,
            self.checkpoint.segmenter,
        )
        if settings.decoder == "sequential" and segmenter is not None:
            # The whole target came as one string. It is cut as the training targets
            # were.
            text = "".join(segments)
            return Generated(text=text, segments=segmenter.cut(text))
        return Generated(
            text=settings.segmentation.joiner.join(segments), segments=segments
        )
