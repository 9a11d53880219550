"""Examples told in words, and what the live view shows of them on a console of known size."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from rich.console import Console

from pipedec_cli.pipeline.decode import Event, Method, decode
from pipedec_cli.pipeline.grid import Explore, Limits
from pipedec_cli.pipeline.schedule import Schedule
from pipedec_cli.terminal.live import LiveGrid
from tests.fakes import BOS, EOS, ScriptedModel


class Script:
    """Examples told in words: a token a word, joined by spaces as a tokenizer would."""

    def __init__(self, *examples: Sequence[Sequence[str]]) -> None:
        self.vocabulary = ["", ""]
        self.scripts = [[[self._token(word) for word in text] for text in example] for example in examples]
        self.decoded = 0

    def _token(self, word: str) -> int:
        if word not in self.vocabulary[2:]:
            self.vocabulary.append(word)
        return self.vocabulary.index(word, 2)

    def words(self, ids: Sequence[int]) -> str:
        self.decoded += 1
        return " ".join(self.vocabulary[token] for token in ids)

    def events(
        self,
        schedule: Schedule,
        *,
        explore: Explore = "once",
        limits: Limits | None = None,
        sequences: int = 1,
    ) -> Iterator[Event]:
        method = Method(schedule, bos=BOS, eos=EOS, limits=limits or Limits(), explore=explore)
        sources = [(index, [index]) for index in range(len(self.scripts))]
        return decode(ScriptedModel(self.scripts), sources, method, sequences)

    def view(self, **more: object) -> LiveGrid:
        return LiveGrid(self.words, **more)  # type: ignore[arg-type]


FIGURE_2 = Script([["A", "B", "C"], ["D", "E"]])

SENTENCES = [[f"{letter}{number}" for number in range(8)] for letter in "abcdef"]


def console(width: int, height: int = 40, *, terminal: bool = False, encoding: str = "utf-8") -> Console:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    return Console(
        width=width, height=height, file=file, force_terminal=terminal, no_color=not terminal, markup=False
    )


def shown(renderable: object, width: int = 80, height: int = 40, *, encoding: str = "utf-8") -> list[str]:
    """The lines of a drawing without styles, trailing blanks cut."""
    target = console(width, height, encoding=encoding)
    with target.capture() as capture:
        target.print(renderable)
    return [line.rstrip() for line in capture.get().split("\n")][:-1]


def after(script: Script, events: Iterable[Event], count: int, **more: object) -> LiveGrid:
    view = script.view(**more)
    for event in islice(events, count):
        view.on(event)
    return view


def finished(script: Script, events: Iterable[Event]) -> object:
    view = script.view()
    return [drawing for event in events if (drawing := view.on(event))][-1]
