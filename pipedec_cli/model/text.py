"""Texts to token ids and back, as training and generating must do it alike."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from pipedec_cli.data.checking import mended_text
from pipedec_cli.data.errors import UserError, first_line

#: Characters of a long source that are tokenized first, for each token that is kept: more than most tokens have.
_CHARACTERS_A_TOKEN: Final = 8
#: Tokens at the end of a source's beginning that are not relied on: a user's own token may have a space within.
_MARGIN: Final = 256
_WORD_END: Final = re.compile(r"(?<=\S) ")

#: What stands around a source that is a decoder-only model's prompt, where nothing else is asked for.
PROMPT: Final = "{source}\n\n"
SOURCE: Final = "{source}"
#: A chat template that asks for the date is told the same one every day: what is trained and what is generated must be
#: read alike. It stands before the template, and goes before the function of that name that transformers gives.
_PARTS_OF_A_DATE: Final = {"d": "01", "m": "01", "b": "Jan", "B": "January", "y": "25", "Y": "2025"}
_TODAY: Final = (
    "{% macro strftime_now(format) %}{{ format"
    + "".join(f"|replace('%{name}','{value}')" for name, value in _PARTS_OF_A_DATE.items())
    + " }}{% endmacro %}"
)


class Prompt(NamedTuple):
    """The ids of what stands before and behind a source in a decoder-only model's prompt, and what they were made of."""

    head: list[int]
    tail: list[int]
    template: str = SOURCE
    chat: bool = False


def usual_prompt(*, chat: bool) -> str:
    """The template where none is asked for: a chat template ends what a user says."""
    return SOURCE if chat else PROMPT


class TextCodec:
    """A transformers tokenizer, the prefix of every source, and the number of tokens that one is cut to.

    An encoder's source stands between the ids `around` it, by default before an <eos>; a decoder-only model's in a
    `prompt`. Either counts. No source is longer than the `places` that an encoder has, if it has a table of them.
    """

    def __init__(
        self,
        tokenizer: Any,
        prefix: str,
        max_source_tokens: int,
        eos: int,
        prompt: Prompt | None = None,
        *,
        around: tuple[list[int], list[int]] | None = None,
        places: int | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        # Special tokens that stand in a user's text are text: "</s>" must not end a subsequence.
        self.tokenizer.split_special_tokens = True
        self.prefix = prefix
        self._places = places
        self.max_source_tokens = max_source_tokens
        self.eos = eos
        self.prompt = prompt
        self._ends = ([], [eos]) if around is None else around
        self._reserved = frozenset(tokenizer.all_special_ids) - {tokenizer.unk_token_id}

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, without special tokens; half a surrogate pair is encoded as U+FFFD."""
        if not (texts := [mended_text(text) for text in texts]):
            return []
        encoded: list[list[int]] = self.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        for row, ids in enumerate(encoded):
            if not self._reserved.isdisjoint(ids) and self._literal is not None:
                encoded[row] = self._literal.encode(texts[row], add_special_tokens=False).ids
        return encoded

    @cached_property
    def _literal(self) -> Any | None:
        """A copy of a unigram tokenizer to which special tokens in a text are text; None for other tokenizers.

        T5's unigram model has its special tokens among its pieces and matches them in any text, whatever
        `split_special_tokens` says. In the copy those pieces have names that no text holds; the ids are the same.
        """
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        content = json.loads(backend.to_str()) if backend is not None else {}
        if content.get("model", {}).get("type") != "Unigram":
            return None
        from tokenizers import Tokenizer

        special = set(self.tokenizer.all_special_tokens)
        for number, piece in enumerate(content["model"]["vocab"]):
            if piece[0] in special:
                piece[0] = f"\U0010ffff{number}"  # which is no character
        for token in content["added_tokens"]:
            if token["content"] in special:
                token["content"] = f"\U0010ffff{token['id']}"
        return Tokenizer.from_str(json.dumps({**content, "post_processor": None}))

    @property
    def max_source_tokens(self) -> int:
        """The number of tokens that a source is cut to, with all that stands around it."""
        return self._most

    @max_source_tokens.setter
    def max_source_tokens(self, most: int) -> None:
        self._most = most if self._places is None else min(most, self._places)

    @property
    def _around(self) -> tuple[list[int], list[int]]:
        return self._ends if self.prompt is None else (self.prompt.head, self.prompt.tail)

    @property
    def described(self) -> dict[str, Any]:
        """How sources are read, by the names that settings and manifests have for it; of prompts only where there are any."""
        told = {"source_prefix": self.prefix, "max_source_tokens": self.max_source_tokens}
        if self.prompt is None:
            return told
        return told | {"prompt": self.prompt.template, "chat": self.prompt.chat}

    @property
    def longest_around(self) -> int:
        """So many tokens at most stand around a source: it has no more of them than characters."""
        return len(self.prefix) + sum(map(len, self._around))

    def source(self, text: str) -> tuple[list[int], bool]:
        """The ids of a source with prefix and all that stands around it, and whether it was cut, which that never is.

        Of a long one no more is tokenized than is sure to hold what is kept: tokens take a hundred times the text's memory.
        A UserError where a prompt leaves no room for a source.
        """
        text, (head, tail) = self.prefix + text, self._around
        room = max(0, self.max_source_tokens - len(head) - len(tail))
        if self.prompt is not None and room == 0:
            what = (
                f"the prompt takes {len(head) + len(tail)} tokens, and all may take {self.max_source_tokens}"
            )
            raise UserError(f"{what}: no source has room", todo="give a larger --max-source-tokens")
        end = _CHARACTERS_A_TOKEN * (room + _MARGIN) if self._splits_at_spaces else len(text)
        while True:
            found = _WORD_END.search(text, end)
            end = found.start() if found else len(text)
            ids = self.ids([text[:end]])[0]
            if end == len(text) or len(ids) > room + _MARGIN:
                return [*head, *ids[:room], *tail] or [self.eos], len(ids) > room
            end *= 2

    @cached_property
    def _splits_at_spaces(self) -> bool:
        """Whether no token reaches over a space, so that a text's tokens up to one are those of its beginning."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None or backend.pre_tokenizer is None:
            return False
        text = backend.normalizer.normalize_str("a b") if backend.normalizer else "a b"
        return len(backend.pre_tokenizer.pre_tokenize_str(text)) == 2

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens and outer white space."""
        options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        return str(self.tokenizer.decode(list(ids), **options)).strip()


def ids_around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What a tokenizer puts before and behind a text by itself."""
    alone = tokenizer("a", add_special_tokens=False)["input_ids"]
    ids = list(tokenizer("a")["input_ids"])
    first = next((n for n in range(len(ids)) if ids[n : n + len(alone)] == alone), 0)
    return ids[:first], ids[first + len(alone) :]


def check_template(template: str) -> str:
    """The same template, which says ``{source}`` once; a UserError if it does not."""
    if template.count(SOURCE) != 1:
        what = f"the prompt template {template[:60]!r} does not say {SOURCE} once"
        raise UserError(what, todo=f"write for example --prompt-template 'Summarize: {SOURCE}'")
    return template


def prompt_text(tokenizer: Any, template: str, *, chat: bool) -> str:
    """A template, with the model's own around it in a `chat`; a UserError if it cannot be."""
    check_template(template)
    whole = template
    if chat:
        whole = _said(tokenizer, {"role": "user", "content": template}, add_generation_prompt=True)
        if whole.count(SOURCE) != 1:
            raise UserError(
                "the model's chat template does not take a user's words once", todo="leave --chat out"
            )
    return whole


def prompt_around(tokenizer: Any, template: str, *, chat: bool) -> Prompt:
    """What a template puts around a source; a UserError if it cannot be.

    In a `chat` it is what the user says, and the model's own template stands around it. Where the tokenizer begins a text
    with a token of its own, so does a prompt. Special tokens in either template are what they are.
    """
    whole = prompt_text(tokenizer, template, chat=chat)
    head, tail = (_template_ids(tokenizer, part) for part in whole.split(SOURCE))
    first = ids_around(tokenizer)[0][:1]
    if first == [tokenizer.bos_token_id] != head[:1]:
        head = [*first, *head]
    return Prompt(head, tail, template, chat)


def text_end(tokenizer: Any, eos: int, *, chat: bool) -> int:
    """The id that ends what a decoder-only model writes: its own eos token or, in a `chat`, what ends a turn."""
    if not chat:
        return eos if tokenizer.eos_token_id is None else int(tokenizer.eos_token_id)
    turns = {"role": "user", "content": "a"}, {"role": "assistant", "content": SOURCE}
    _, _, behind = _said(tokenizer, *turns).rpartition(SOURCE)
    # An end of turn need not have a name of its own among the tokenizer's special tokens.
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return next((token for token in _template_ids(tokenizer, behind) if token in special), eos)


def _template_ids(tokenizer: Any, text: str) -> list[int]:
    """The ids of a piece of a template, in which special tokens are what they are."""
    told = {"add_special_tokens": False, "split_special_tokens": False, "verbose": False}
    return list(tokenizer(text, **told)["input_ids"]) if text else []


def _said(tokenizer: Any, *turns: dict[str, str], **options: Any) -> str:
    """A conversation as the chat template of a tokenizer puts it; a UserError if it has none, or none that works."""
    if getattr(tokenizer, "chat_template", None) is None:
        raise UserError("the model's tokenizer has no chat template", todo="leave --chat out")
    try:
        dated = _TODAY + tokenizer.get_chat_template()
        given = {"tokenize": False, "enable_thinking": False, "chat_template": dated} | options
        return str(tokenizer.apply_chat_template(list(turns), **given))
    except Exception as error:  # whatever a template does
        what = f"the model's chat template cannot be used: {first_line(error)}"
        raise UserError(what, todo="leave --chat out") from error
