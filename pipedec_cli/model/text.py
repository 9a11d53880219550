"""Texts to token ids and back, the same in training and in decoding; and the prompts of decoder-only models."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from threading import Lock
from typing import Any, Final, NamedTuple

from pipedec_cli.data.errors import UserError, first_line
from pipedec_cli.data.reading import mended_text

#: Of a long source, so many characters are tokenized first for each token that is kept:
#: more than most tokens have.
_CHARACTERS_A_TOKEN: Final = 8
#: The last tokens of a source's beginning may change with the text behind it: a token
#: may have a space within.
_MARGIN: Final = 256
_WORD_END: Final = re.compile(r"(?<=\S) ")

#: A tokenizer is told with each text whether special tokens are text, so two threads
#: may not tokenize at the same time.
_TOKENIZING: Final = Lock()

#: A cut source may have so many tokens more than there is room for, because they are
#: other ones within the prompt.
_MERGED: Final = 4


#: The default prompt of a decoder-only model, and the parts that stand for the source
#: and for what differs between rows.
PROMPT: Final = "{source}\n\n"
SOURCE: Final = "{source}"
QUESTION: Final = "{question}"
#: Stands for what is said in an earlier turn.
_TURN: Final = "\x02{}\x02"
#: White space beside the words of users shows whether a chat template strips them.
_PAD: Final = "\x1f"
_PLACES: Final = re.compile(rf"({_PAD}?)({SOURCE}|{QUESTION}|\x02\d+\x02)({_PAD}?)")
#: Chat templates are rendered with a fixed date, the same in training and in decoding.
#: This macro stands before the template and replaces transformers' function of that
#: name.
_PARTS_OF_A_DATE: Final = {
    "d": "01",
    "m": "01",
    "b": "Jan",
    "B": "January",
    "y": "25",
    "Y": "2025",
}
_TODAY: Final = (
    "{% macro strftime_now(format) %}{{ format"
    + "".join(
        f"|replace('%{name}','{value}')" for name, value in _PARTS_OF_A_DATE.items()
    )
    + " }}{% endmacro %}"
)


class Place(NamedTuple):
    """Where the words of a user stand in a prompt, and on which sides the chat template strips them."""

    name: str
    left: bool
    right: bool

    def filled(self, words: str) -> str:
        """The words as the chat template takes them."""
        words = words.lstrip() if self.left else words
        return words.rstrip() if self.right else words


@dataclass(frozen=True, slots=True)
class Prompt:
    """A decoder-only model's prompt as a text in parts, and the template that it was made of.

    Each second part is for the words of a user, in which special tokens are text.
    """

    parts: tuple[str | Place, ...] = ("", Place(SOURCE, left=False, right=False), "")
    first: tuple[
        int, ...
    ] = ()  # the token that begins a text, if the tokenizer begins texts with a token
    template: str = SOURCE
    chat: bool = False
    text: str = SOURCE  # the template as it is read, within the chat template
    known: tuple[int, ...] = ()  # the last tokens, which a row of its own begins with
    apart: bool = False  # whether each part is tokenized for itself: users' words hold special tokens

    @property
    def at(self) -> int:
        """The number of the part that stands for the source."""
        return next(
            n
            for n, part in enumerate(self.parts)
            if isinstance(part, Place) and part.name == SOURCE
        )

    def filled(self, words: Mapping[str, str]) -> Prompt:
        """The prompt with words in the places of these names."""
        parts = [*self.parts]
        for number, part in enumerate(parts):
            if isinstance(part, Place) and part.name in words:
                parts[number] = part.filled(words[part.name])
        return replace(self, parts=tuple(parts))


def usual_prompt(*, chat: bool) -> str:
    """The default template; in a chat the source alone, because the chat template ends the user's turn."""
    return SOURCE if chat else PROMPT


class TextCodec:
    """A tokenizer of transformers, with the prefix of every source and the number of tokens that it is cut to.

    A source for an encoder stands between the ids `around` it, by default before an
    <eos>; a source for a decoder-only model stands in its `prompt`. These ids count,
    too. `places` bounds the number of tokens, if the encoder has a table of positions.
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
        # Special tokens in a user's text are text: "</s>" must not end a subsequence.
        self.tokenizer.split_special_tokens = True
        self.eos = eos
        self.prompt = prompt
        self._places = places
        self.max_source_tokens = max_source_tokens
        self._ends = ([], [eos]) if around is None else around
        self.prefix = prefix
        self._reserved = frozenset(tokenizer.all_special_ids) - {tokenizer.unk_token_id}

    def ids(self, texts: Sequence[str], *, written: bool = False) -> list[list[int]]:
        """The ids of texts, without special tokens; half a surrogate pair is encoded as U+FFFD.

        Some translation models have pieces of their own for texts that are `written`,
        not read.
        """
        if not (texts := [mended_text(text) for text in texts]):
            return []
        if written and hasattr(self.tokenizer, "spm_target"):
            return list(_tokenized(self.tokenizer, None, text_target=texts))
        encoded = list(_tokenized(self.tokenizer, texts))
        for row, ids in enumerate(encoded):
            if not self._reserved.isdisjoint(ids) and self._literal is not None:
                encoded[row] = self._literal.encode(
                    texts[row], add_special_tokens=False
                ).ids
        return encoded

    def _joined(self, parts: Sequence[str], *, apart: bool) -> list[int]:
        """The ids of one text, given in parts. In each second part special tokens are text.

        Parts that have any are tokenized for themselves; if it is to be `apart`, each
        part is.
        """
        names = special_names(self.tokenizer).findall
        pieces = [""]  # each second one is text
        of_template = list[str]()
        for number, part in enumerate(parts):
            if number % 2 and (apart or names(part)):
                pieces += [part, ""]
                continue
            pieces[-1] += part
            if number % 2 == 0:
                of_template += names(part)
        if not apart and [*chain(*map(names, pieces[::2]))] != of_template:
            return self._joined(parts, apart=True)  # words make a name with others
        ids = list[int]()
        for number, piece in enumerate(pieces):
            if number % 2:
                ids += self.ids([piece])[0]
            else:
                ids += template_ids(self.tokenizer, piece)
        return ids

    @cached_property
    def _literal(self) -> Any | None:
        """A copy of a unigram tokenizer that reads special tokens in a text as text; None for other tokenizers.

        T5's unigram model has its special tokens among its pieces and finds them in any
        text, whatever `split_special_tokens` says. In the copy these pieces have names
        that no text holds; the ids are the same.
        """
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        content = json.loads(backend.to_str()) if backend is not None else {}
        if content.get("model", {}).get("type") != "Unigram":
            return None
        from tokenizers import Tokenizer

        special = set(self.tokenizer.all_special_tokens)
        for number, piece in enumerate(content["model"]["vocab"]):
            if piece[0] in special:
                piece[0] = f"\U0010ffff{number}"  # no text holds this code point
        for token in content["added_tokens"]:
            if token["content"] in special:
                token["content"] = f"\U0010ffff{token['id']}"
        return Tokenizer.from_str(json.dumps({**content, "post_processor": None}))

    @property
    def max_source_tokens(self) -> int:
        """The most tokens of a source, with all ids around it."""
        return self._most

    @max_source_tokens.setter
    def max_source_tokens(self, most: int) -> None:
        self._most = most if self._places is None else min(most, self._places)

    @property
    def prefix(self) -> str:
        """What stands before every source. Of a translation model it names the languages of source and text by their codes."""
        return self._prefix

    @prefix.setter
    def prefix(self, prefix: str) -> None:
        before = prefix
        if prefix and hasattr(type(self.tokenizer), "src_lang"):
            source, target, *_ = *prefix.split(), None, None
            for code in filter(None, (source, target)):
                language_id(self.tokenizer, code)
            self.tokenizer.src_lang = source
            self.tokenizer.tgt_lang = target
            before = ""
            self._ends = ids_around(self.tokenizer)
            prefix = " ".join(prefix.split())
        self._prefix = prefix
        self._before = before

    @property
    def described(self) -> dict[str, Any]:
        """How sources are read, by the names in settings and manifests."""
        described = {
            "source_prefix": self.prefix,
            "max_source_tokens": self.max_source_tokens,
        }
        if self.prompt is None:
            return described
        return described | {"prompt": self.prompt.template, "chat": self.prompt.chat}

    def after(self, turns: Sequence[tuple[str, str]]) -> TextCodec:
        """This codec behind earlier turns of a chat, each a role and a text. A UserError if the model takes none, or not these."""
        if not turns:
            return self
        if self.prompt is None or not self.prompt.chat:
            raise UserError("the model reads one message, the user's", where="messages")
        roles, texts = zip(*turns, strict=True)
        behind = _behind(self.tokenizer, self.prompt.template, self.prompt.text, roles)
        parts = behind.parts[: behind.at + 1] + self.prompt.parts[self.prompt.at + 1 :]
        made = copy.copy(self)
        words = {_TURN.format(number): text for number, text in enumerate(texts)}
        made.prompt = replace(self.prompt, parts=parts).filled(words)
        return made

    @property
    def longest_around(self) -> int:
        """The most tokens around a source: a prefix has no more tokens than characters."""
        around = (
            sum(map(len, self._ends))
            if self.prompt is None
            else len(self.prompted(self.prompt, "a"))
        )
        return len(self._before) + around

    def prompted(self, prompt: Prompt, source: str) -> list[int]:
        """The ids of a prompt with a source in it, but for the known tokens of a row: those of the whole text."""
        for text in (
            source,
            source.rstrip(),
        ):  # white space at its end may be within a token of the row
            filled = prompt.filled({SOURCE: text}).parts
            parts = [
                mended_text(part if isinstance(part, str) else part.name)
                for part in filled
            ]
            ids = self._joined(parts, apart=prompt.apart)
            ids = ids if tuple(ids[:1]) == prompt.first else [*prompt.first, *ids]
            end = len(ids) - len(prompt.known)
            if tuple(ids[end:]) == prompt.known:
                return ids[:end]
        what = "a token holds the end of a text and the beginning of its question"
        raise UserError(what, todo=f"put a line break before {QUESTION}")

    def source(self, text: str) -> tuple[list[int], bool]:
        """The ids of a source with its prefix and all around it, and whether the source was cut.

        A source in a prompt is cut in its own tokens, and what is left is tokenized
        with the prompt. A UserError if a prompt leaves no room for a source.
        """
        text = mended_text(self._before + text)
        most = self.max_source_tokens
        prompt = self.prompt
        if prompt is None:
            head, tail = self._ends
            room = max(0, most - len(head) - len(tail))
            _, ids = self._beginning(text, room)
            return [*head, *ids[:room], *tail] or [self.eos], len(ids) > room
        is_long = len(text) > _CHARACTERS_A_TOKEN * (most + _MARGIN)
        begun = self._beginning(text, most)[0] if is_long else text
        if text and begun == text and len(ids := self.prompted(prompt, text)) <= most:
            return ids or [self.eos], False
        takes = len(ids := self.prompted(prompt, ""))
        if takes >= most:
            what = f"the prompt takes {takes} tokens, and all may take {most}: no source has room"
            raise UserError(what, todo="give a larger --max-source-tokens")
        shorter = (
            self.prompted(prompt, part)
            for part in self._cut(begun, most - takes + _MERGED)
        )
        return next((whole for whole in shorter if len(whole) <= most), ids) or [
            self.eos
        ], text != ""

    def _beginning(self, text: str, room: int) -> tuple[str, list[int]]:
        """As much of a text as is sure to hold its first `room` tokens, and its ids.

        The rest is not tokenized, because tokens take a hundred times the memory of the
        text.
        """
        end = (
            _CHARACTERS_A_TOKEN * (room + _MARGIN)
            if self._splits_at_spaces
            else len(text)
        )
        while True:
            found = _WORD_END.search(text, end)
            end = found.start() if found else len(text)
            ids = self.ids([text[:end]])[0]
            if end == len(text) or len(ids) > room + _MARGIN:
                return text[:end], ids
            end *= 2

    def _cut(self, text: str, most: int) -> Iterator[str]:
        """The beginnings of a text that have 1 to `most` tokens of it, the longest first."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        ids = self.ids([text])[0]
        if backend is None:
            yield from (
                self.written(ids[:n]).rstrip("\ufffd")
                for n in range(min(most, len(ids)), 0, -1)
            )
            return
        with _TOKENIZING:
            places = backend.encode(text, add_special_tokens=False).offsets
        for (_, end), (start, _) in reversed(
            [*pairwise([*places, (len(text), 0)][: most + 1])]
        ):
            if start >= end:  # the next token is of another character
                yield text[:end]

    @cached_property
    def _splits_at_spaces(self) -> bool:
        """Whether no token reaches over a space, so that the tokens of a text's beginning are the first of the text."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None or backend.pre_tokenizer is None:
            return False
        text = backend.normalizer.normalize_str("a b") if backend.normalizer else "a b"
        return len(backend.pre_tokenizer.pre_tokenize_str(text)) == 2

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens and outer white space."""
        return self.written(ids, skip=True).strip()

    def written(self, ids: Sequence[int], *, skip: bool = False) -> str:
        """The text of ids as it is: with all white space and, unless `skip` is set, with special tokens."""
        options = {"skip_special_tokens": skip, "clean_up_tokenization_spaces": False}
        return str(self.tokenizer.decode(list(ids), **options))


def ids_around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special ids that a tokenizer puts before and behind a text."""
    alone = _tokenized(tokenizer, "a")
    ids = list(_tokenized(tokenizer, "a", add_special_tokens=True))
    first = next((n for n in range(len(ids)) if ids[n : n + len(alone)] == alone), 0)
    return ids[:first], ids[first + len(alone) :]


def language_id(tokenizer: Any, code: str) -> int:
    """The id of a language in a translation model's tokenizer. A UserError if there is no such language."""
    tokens = getattr(tokenizer, "lang_code_to_token", None) or {
        one: one for one in tokenizer.all_special_tokens
    }
    if code not in tokens:
        todo = (
            "name the languages of source and text as its tokenizer does: "
            f"'eng_Latn deu_Latn {SOURCE}' as the prompt template"
        )
        raise UserError(f"the model knows no language {code!r}", todo=todo)
    return int(tokenizer.convert_tokens_to_ids(tokens[code]))


def check_template(template: str) -> str:
    """The same template; a UserError unless it holds ``{source}`` once."""
    if template.count(SOURCE) != 1:
        what = f"the prompt template {template[:60]!r} does not say {SOURCE} once"
        raise UserError(what, todo=f"write for example 'Summarize: {SOURCE}'")
    return template


def prompt_text(tokenizer: Any, template: str, *, chat: bool) -> str:
    """The prompt with ``{source}`` in it: the template, in a `chat` as the user's turn in the model's chat template."""
    check_template(template)
    if not chat:
        return template
    text = _rendered(
        tokenizer, {"role": "user", "content": template}, add_generation_prompt=True
    )
    if text.count(SOURCE) != 1:
        what = "the model's chat template does not take a user's words once"
        raise UserError(what, todo="leave --chat out")
    return text


def prompt_around(tokenizer: Any, template: str, *, chat: bool) -> Prompt:
    """The prompt that a template makes; a UserError if the template does not fit.

    If the tokenizer begins a text with a special token, so does the prompt; what begins
    a chat is the chat template's.
    """
    text = prompt_text(tokenizer, template, chat=chat)
    first = ids_around(tokenizer)[0][:1]
    is_begun = not chat and first == [tokenizer.bos_token_id]
    parts = _parts(tokenizer, template, () if chat else None)
    return Prompt(parts, tuple(first) if is_begun else (), template, chat, text)


def _parts(
    tokenizer: Any, template: str, roles: Sequence[str] | None
) -> tuple[str | Place, ...]:
    """The parts of a prompt, in a chat behind turns of these roles; None is for no chat."""
    text = _PLACES.sub(rf"{_PAD}\2{_PAD}", template)
    if roles is not None:
        turns = [
            {"role": role, "content": f"{_PAD}{_TURN.format(at)}{_PAD}"}
            for at, role in enumerate(roles)
        ]
        text = _rendered(
            tokenizer,
            *turns,
            {"role": "user", "content": text},
            add_generation_prompt=True,
        )
    found = _PLACES.split(text)
    parts: list[str | Place] = found[:1]
    for left, name, right, behind in zip(
        found[1::4], found[2::4], found[3::4], found[4::4], strict=True
    ):
        parts += [Place(name, left=not left, right=not right), behind]
    return tuple(parts)


@lru_cache(64)
def _behind(
    tokenizer: Any, template: str, alone: str, roles: tuple[str, ...]
) -> Prompt:
    """The prompt behind turns of these roles.

    `alone` is the prompt without these turns; its end must stay as it is. Only roles go
    through the chat template: what is said in the turns cannot change it, and it runs
    once for all turns of the same roles.
    """
    made = Prompt(_parts(tokenizer, template, roles))
    names = [part if isinstance(part, str) else part.name for part in made.parts]
    wanted = sorted([SOURCE, *map(_TURN.format, range(len(roles)))])
    taken = sorted(name for name in names[1::2] if name != QUESTION)
    if (
        taken != wanted
        or "".join(names).partition(SOURCE)[2] != alone.partition(SOURCE)[2]
    ):
        raise UserError(
            "the model's chat template does not take each message once",
            where="messages",
        )
    return made


def text_end(tokenizer: Any, named: Sequence[int], *, chat: bool) -> int:
    """The main end of what a decoder-only model writes: in a `chat` the end of a turn, else one of those `named` in its files.

    This is the tokenizer's eos, if it is one of them.
    """
    usual = tokenizer.eos_token_id if tokenizer.eos_token_id in named else named[0]
    if not chat:
        return int(usual)
    turns = {"role": "user", "content": "a"}, {"role": "assistant", "content": SOURCE}
    _, _, behind = _rendered(tokenizer, *turns).rpartition(SOURCE)
    # The end of a turn need not have a name among the tokenizer's special tokens.
    special = {
        number
        for number, token in tokenizer.added_tokens_decoder.items()
        if token.special
    }
    return next(
        (token for token in template_ids(tokenizer, behind) if token in special),
        int(usual),
    )


def template_ids(tokenizer: Any, text: str) -> list[int]:
    """The ids of a part of a template; its special tokens are special."""
    return list(_tokenized(tokenizer, text, split_special_tokens=False)) if text else []


def _tokenized(
    tokenizer: Any, texts: str | Sequence[str] | None, **options: Any
) -> Any:
    try:
        with _TOKENIZING:
            return tokenizer(
                texts, **{"add_special_tokens": False, "verbose": False, **options}
            )["input_ids"]
    except BaseException as error:
        # Rust's own error: a text takes too long in a regular expression of the
        # tokenizer.
        if type(error).__name__ != "PanicException":
            raise
        raise UserError(
            f"the model's tokenizer fails at a text: {first_line(error)}"
        ) from error


@lru_cache(64)
def special_names(tokenizer: Any) -> re.Pattern[str]:
    """What finds the names of special tokens in a text."""
    added = (
        token.content
        for token in tokenizer.added_tokens_decoder.values()
        if token.special
    )
    names = sorted({*tokenizer.all_special_tokens, *added}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, names)) or "(?!)")


def _rendered(tokenizer: Any, *turns: dict[str, str], **options: Any) -> str:
    """A conversation in the tokenizer's chat template; a UserError if there is none, or it fails."""
    if getattr(tokenizer, "chat_template", None) is None:
        raise UserError(
            "the model's tokenizer has no chat template", todo="leave --chat out"
        )
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    options |= {"enable_thinking": False}
    # As transformers does it, without what that adds to jinja2: its import takes a
    # second.
    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    del plain.filters["tojson"]  # transformers has its own
    try:
        template = _TODAY + tokenizer.get_chat_template()
        try:
            given = {"messages": turns, "tools": None, "documents": None}
            return plain.from_string(template).render(
                **given, **tokenizer.special_tokens_map, **options
            )
        except TemplateError:  # it uses what transformers adds, or fails there as well
            whole = {"tokenize": False, "chat_template": template}
            return str(tokenizer.apply_chat_template(list(turns), **whole, **options))
    except Exception as error:  # whatever a template raises
        what = f"the model's chat template cannot be used: {first_line(error)}"
        raise UserError(what, todo="leave --chat out") from error
