"""The live grid as an SVG picture, for documents.

`python -m pipedec_cli.terminal.views.live_picture docs/images/live-grid.svg` draws the one in the README from a rehearsed
run of a demo record. With a trained checkpoint, give `save_picture` the events of its own run instead.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final

from rich.console import Console

from pipedec_cli.data.demo import make_demo
from pipedec_cli.data.writing import write_text
from pipedec_cli.pipeline.decode import Event, Finished, Method, Row, Stepped, decode
from pipedec_cli.pipeline.schedule import Fixed
from pipedec_cli.terminal.views.live import LiveGrid

WIDTH: Final = 116
HEIGHT: Final = 40


class Rehearsal:
    """A `StepModel` that says what it was told to, an empty subsequence after the last; one example at a time.

    Attributes:
        vocabulary: what the ids stand for; 0 is <bos>, 1 is <eos>.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        """Learn the lines by heart.

        Args:
            texts: the subsequences; a word or a punctuation mark is a token.
        """
        pieces = [re.findall(r"\w+|[^\w\s]", text) for text in texts]
        self.vocabulary = ["", "", *sorted({piece for line in pieces for piece in line})]
        self._lines = [[self.vocabulary.index(piece) for piece in line] for line in pieces]
        self._starts: dict[int, int] = {}

    def admit(self, newcomers: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Begin anew."""
        self._starts = {}

    def step(self, rows: Sequence[Row]) -> list[int]:
        """The next word of each row's line, <eos> after the last."""
        answers = []
        for _, slot in rows:
            line = self._lines[slot.subsequence - 1] if slot.subsequence <= len(self._lines) else []
            said = slot.time - self._starts.setdefault(slot.subsequence, slot.time)
            answers.append(line[said] if said < len(line) else 1)
        return answers

    def release(self, lane: int) -> None:
        """Nothing is kept."""

    def words(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return re.sub(r" (?=[.,;:])", "", " ".join(self.vocabulary[token] for token in ids)).strip()


def save_picture(
    path: Path, view: LiveGrid, events: Iterable[Event], *, steps: int, width: int = WIDTH
) -> None:
    """Save what a view shows after so many decoder calls of its first example.

    Args:
        path: the SVG file.
        view: the view; nothing has happened in it yet.
        events: of a decoding run.
        steps: decoder calls; the finished grid if it has fewer.
        width: columns of the picture.
    """
    finished = None
    for event in takewhile(
        lambda event: not isinstance(event, Stepped) or event.step.number <= steps, events
    ):
        finished = view.on(event)
        if isinstance(event, Finished):
            break
    console = Console(
        record=True,
        width=width,
        height=HEIGHT,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(finished or view)
    svg = console.export_svg(title="pipedec generate --live", unique_id=path.stem)
    write_text(path, svg)


def main(path: Path) -> None:
    """Draw the picture of the README."""
    record = make_demo(6, seed=1)[0]
    model = Rehearsal(re.findall(r"[^.]+\.", record["target"]))
    view = LiveGrid(model.words, eos=1, method="Δt = 2", name=lambda _: str(record["source"]))
    save_picture(path, view, decode(model, [(0, [1])], Method(Fixed(2), bos=0, eos=1)), steps=12)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
