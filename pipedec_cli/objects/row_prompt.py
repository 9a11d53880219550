"""The prompt of blind rows, and the tokens of each row, which go on behind it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.model.text import (
    QUESTION,
    SOURCE,
    Prompt,
    TextCodec,
    prompt_around,
    special_names,
)

#: The most texts of rows whose tokens are kept: as many as a schema may have choices.
_MOST_KEPT: Final = 20_000


class RowPrompt:
    """A prompt with a source, behind which each row asks in its own words.

    The tokens of prompt and row together are those of the whole text: the prompt ends
    where the tokens of all rows do not differ yet.
    """

    def __init__(
        self,
        codec: TextCodec,
        template: str,
        first: Sequence[str],
        later: Sequence[str],
        answers: Sequence[str],
        *,
        chat: bool,
    ) -> None:
        """Find where the prompt ends and the rows begin: where the tokens of rows with different words first differ.

        Those and the `answers` that are known tell whether users name special tokens.
        Raises a UserError for a template whose question does not stand behind the
        source and apart from it.
        """
        prompt = prompt_around(codec.tokenizer, template, chat=chat)
        _check_question(template, prompt.text)
        if not chat:  # a row ends at a line break
            prompt = replace(prompt, parts=(*prompt.parts[:-1], ""))
        self._codec = codec
        self.chat = chat
        #: What stands between the words of a row and its answer.
        self._space = "" if chat else " "
        #: What stands behind the answers of an example.
        self._behind = template.partition(QUESTION)[2]
        # The tokens of all rows are made in one way.
        special = special_names(codec.tokenizer)
        words = (*first, *later, *answers)
        is_special = any(special.search(text) for text in words)
        self._prompt = replace(prompt, apart=is_special)
        #: The tokens of choices of a schema and of "no value" are the same for each
        #: source.
        self._whole = lru_cache(maxsize=_MOST_KEPT)(self._tokenized)
        rows = [self._whole(words) for words in (*first, *later)]
        alike = list(rows)
        # In a chat what the questions of all rows begin with is read once, with the
        # text. Else a row may have any words, for which a letter stands.
        if len(rows) == 1 or later or not chat:
            alike.append(self._whole("a"))
        shortest = min(len(row) for row in rows)
        self._shared = min(len(common_beginning(*alike)), shortest - 1)

    def known(self, words: str) -> tuple[int, ...]:
        """The tokens of a row that asks in these words, behind those of the prompt."""
        return self._whole(words)[self._shared :]

    def answered(self, words: str, answer: str) -> tuple[int, ...]:
        """The tokens of a row that asks in these words and of an answer behind it."""
        return self._whole(words, self._space + answer)[self._shared :]

    @cached_property
    def end(self) -> int:
        """The token that ends an answer: outside a chat that of a line break."""
        return self._codec.eos if self.chat else self._codec.ids(["a\n"])[0][-1]

    def alone(self, answer: str) -> list[int]:
        """The tokens of an answer by itself."""
        return self._codec.ids([self._space + answer])[0]

    def with_shots(self, words: str, shots: Iterable[tuple[str, str]]) -> Prompt:
        """The whole prompt of a row that asks in these words, behind examples; its source is still open.

        `shots` are the examples: pairs of a source and the lines of its answers.
        """
        before, source, between, question, behind = self._prompt.parts
        parts = [before]
        for text, lines in shots:
            parts += [text, between, lines, f"{self._behind}{before}"]
        parts += [source, between, question, behind]
        filled = replace(self._prompt, parts=tuple(parts)).filled({QUESTION: words})
        return replace(filled, known=self.known(words))

    def _tokenized(self, words: str, answer: str = "") -> tuple[int, ...]:
        """The ids of the prompt with a row's words and, behind these, an answer, where the source is a single letter."""
        prompt = self._prompt.filled({QUESTION: words})
        if answer:
            prompt = replace(prompt, parts=(*prompt.parts, answer, ""))
        return tuple(self._codec.prompted(prompt, "a"))


def _check_question(template: str, text: str) -> None:
    """Raise a UserError unless a prompt says its question once, behind the source and apart from it."""
    before, _, rest = text.partition(SOURCE)
    is_apart = QUESTION not in before and not rest.startswith(QUESTION)
    if is_apart and rest.count(QUESTION) == 1:
        return
    what = f"the prompt {template[:60]!r} does not say {QUESTION} once, behind {SOURCE} and apart from it"
    todo = "questions differ behind the text, so that the text is read once"
    raise UserError(what, todo=todo)


def common_beginning(*rows: Sequence[int]) -> list[int]:
    """What all rows begin with."""
    tokens = []
    for column in zip(*rows, strict=False):
        if len(set(column)) > 1:
            break
        tokens.append(column[0])
    return tokens
