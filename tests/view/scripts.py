"""Examples told in words, and what the live view shows of them on a console of known size."""

import io
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from rich.console import Console

from pipedec_cli.events import Generating
from pipedec_cli.pipeline.decode import Event, decode
from pipedec_cli.pipeline.grid import EmptyRows, Limits, Method
from pipedec_cli.pipeline.schedule import Schedule
from pipedec_cli.view.live import GridDrawing, LiveGrid
from tests.fakes import BOS, EOS, ScriptedModel


class Script:
    """Examples told in words: a token a word, joined by spaces as a tokenizer would."""

    def __init__(self, *examples: Sequence[Sequence[str]]) -> None:
        words = [word for example in examples for text in example for word in text]
        self.vocabulary = ["", "", *dict.fromkeys(words)]
        ids = {word: number for number, word in enumerate(self.vocabulary[2:], start=2)}
        self.scripts = [
            [[ids[word] for word in text] for text in example] for example in examples
        ]
        self.decoded = 0

    def words(self, ids: Sequence[int]) -> str:
        self.decoded += 1
        return " ".join(self.vocabulary[token] for token in ids)

    def events(
        self,
        schedule: Schedule,
        *,
        empty_rows: EmptyRows = "stop",
        limits: Limits | None = None,
        sequences: int = 1,
    ) -> Iterator[Event]:
        method = Method(
            schedule, bos=BOS, eos=EOS, limits=limits or Limits(), empty_rows=empty_rows
        )
        sources = [(index, [index]) for index in range(len(self.scripts))]
        return decode(ScriptedModel(self.scripts), sources, method, sequences)

    def view(self, **more: Any) -> LiveGrid:
        usual: dict[str, Any] = {"total": None, "method": "", "name": lambda _: ""}
        return LiveGrid(Generating(decode=self.words, **usual | more))

    def after(self, count: int, schedule: Schedule, **more: Any) -> LiveGrid:
        """The view after so many events."""
        view = self.view(**more)
        for event in islice(self.events(schedule), count):
            view.on(event)
        return view

    def finished(self, schedule: Schedule, limits: Limits | None = None) -> GridDrawing:
        view = self.view()
        return [
            drawing
            for event in self.events(schedule, limits=limits)
            if (drawing := view.on(event))
        ][-1]


FIGURE_2 = Script([["A", "B", "C"], ["D", "E"]])
SENTENCES = Script(
    [[f"{letter}{number}" for number in range(8)] for letter in "abcdef"]
)


def console(
    width: int, height: int = 40, *, terminal: bool = False, encoding: str = "utf-8"
) -> Console:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    return Console(
        width=width,
        height=height,
        file=file,
        force_terminal=terminal,
        no_color=not terminal,
        markup=False,
    )


def shown(
    renderable: object, width: int = 80, height: int = 40, *, encoding: str = "utf-8"
) -> list[str]:
    """The lines of a drawing without styles, trailing blanks cut."""
    target = console(width, height, encoding=encoding)
    with target.capture() as capture:
        target.print(renderable)
    return [line.rstrip() for line in capture.get().split("\n")][:-1]
