"""Texts to token ids and back, the same in training and in decoding; and the prompts of decoder-only models."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
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
#: may not tokenize at the same time: every text goes through `tokenized`.
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
_TODAY: Final = (
    "{% macro strftime_now(format) %}{{ format"
    "|replace('%d','01')"
    "|replace('%m','01')"
    "|replace('%b','Jan')"
    "|replace('%B','January')"
    "|replace('%y','25')"
    "|replace('%Y','2025')"
    " }}{% endmacro %}"
)


class Place(NamedTuple):
    """Where the words of a user stand in a prompt, and on which sides the chat template strips them."""

    name: str
    left: bool
    right: bool

    def filled(self, words: str) -> str:
        """The words of a user as the chat template takes them: stripped on its sides."""
        if self.left:
            words = words.lstrip()
        if self.right:
            words = words.rstrip()
        return words


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
        names = [part.name if isinstance(part, Place) else "" for part in self.parts]
        return names.index(SOURCE)

    def filled(self, words: Mapping[str, str]) -> Prompt:
        """The prompt with words in some of its places; `words` are by the names of the places, such as ``{source}``."""
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
        """Take a tokenizer, which is told to read special tokens in texts as text, and how sources are read.

        Args:
            tokenizer: As transformers has them.
            prefix: The text before every source.
            max_source_tokens: What a source is cut to, with all around it.
            eos: The id that ends a text.
            prompt: What a decoder-only model's source stands in; None for an encoder.
            around: The ids before and behind an encoder's source; None: an <eos> behind.
            places: A smaller bound of tokens, if the encoder has a table of positions.
        """
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
        """The ids of each text, without special tokens; half a surrogate pair is encoded as U+FFFD.

        Some translation models have pieces of their own for texts that are `written`,
        not read.
        """
        texts = [mended_text(text) for text in texts]
        if not texts:
            return []
        if written and hasattr(self.tokenizer, "spm_target"):
            return list(tokenized(self.tokenizer, None, text_target=texts))
        encoded = list(tokenized(self.tokenizer, texts))
        for row, ids in enumerate(encoded):
            has_special = not self._reserved.isdisjoint(ids)
            if has_special and self._literal is not None:
                again = self._literal.encode(texts[row], add_special_tokens=False)
                encoded[row] = again.ids
        return encoded

    def _joined(self, parts: Sequence[str], *, apart: bool) -> list[int]:
        """The ids of one text, given in parts: in turn those of a template and words of a user.

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
        """Set it. A translation model is told the languages, and a UserError raised for one that it does not know."""
        before = prefix
        if prefix and hasattr(type(self.tokenizer), "src_lang"):
            codes = prefix.split()
            for code in codes[:2]:
                language_id(self.tokenizer, code)
            source, target = [*codes, None, None][:2]
            self.tokenizer.src_lang = source
            self.tokenizer.tgt_lang = target
            self._ends = ids_around(self.tokenizer)
            prefix = " ".join(codes)
            before = ""
        self._prefix = prefix
        self._before = before  # the text that stands before a source

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
        """A copy of this codec whose prompt begins with earlier turns of a chat, each a role and a text.

        A UserError if the model takes no turns, or not these.
        """
        if not turns:
            return self
        if self.prompt is None or not self.prompt.chat:
            raise UserError("the model reads one message, the user's", where="messages")
        roles, texts = zip(*turns, strict=True)
        behind = _behind(self.tokenizer, self.prompt.template, self.prompt.text, roles)
        parts = behind.parts[: behind.at + 1] + self.prompt.parts[self.prompt.at + 1 :]
        codec = copy.copy(self)
        words = {_TURN.format(number): text for number, text in enumerate(texts)}
        codec.prompt = replace(self.prompt, parts=parts).filled(words)
        return codec

    @property
    def longest_around(self) -> int:
        """The most tokens around a source: a prefix has no more tokens than characters."""
        if self.prompt is None:
            around = sum(map(len, self._ends))
        else:
            around = len(self.prompted(self.prompt, "a"))
        return len(self._before) + around

    def prompted(self, prompt: Prompt, source: str) -> list[int]:
        """The ids of a prompt with a source in it, as the whole text has them.

        The last ones are left out where they are the `known` tokens of the prompt, with
        which a row of its own begins. A UserError if the text does not end in these.
        """
        # White space at the source's end may be within a token of the row.
        for text in (source, source.rstrip()):
            parts = []
            for part in prompt.filled({SOURCE: text}).parts:
                words = part if isinstance(part, str) else part.name
                parts.append(mended_text(words))
            ids = self._joined(parts, apart=prompt.apart)
            if tuple(ids[:1]) != prompt.first:
                ids = [*prompt.first, *ids]
            end = len(ids) - len(prompt.known)
            if tuple(ids[end:]) == prompt.known:
                return ids[:end]
        what = "a token holds the end of a text and the beginning of its question"
        raise UserError(what, todo=f"put a line break before {QUESTION}")

    def source(self, text: str) -> tuple[list[int], bool]:
        """The ids of a source with its prefix and all around it, and whether the source was cut.

        At least one id, and at most `max_source_tokens`. A UserError if a prompt leaves
        no room for a source.
        """
        text = mended_text(self._before + text)
        if self.prompt is not None:
            ids, is_cut = self._in_prompt(self.prompt, text)
            return ids or [self.eos], is_cut
        head, tail = self._ends
        room = max(0, self.max_source_tokens - len(head) - len(tail))
        _, ids = self._beginning(text, room)
        return [*head, *ids[:room], *tail] or [self.eos], len(ids) > room

    def _in_prompt(self, prompt: Prompt, text: str) -> tuple[list[int], bool]:
        """The ids of a prompt with a source in it, and whether the source was cut.

        It is cut in its own tokens, and what is left is tokenized with the prompt.
        """
        most = self.max_source_tokens
        begun = text
        if len(text) > _CHARACTERS_A_TOKEN * (most + _MARGIN):
            begun, _ = self._beginning(text, most)
        if text and begun == text:
            ids = self.prompted(prompt, text)
            if len(ids) <= most:
                return ids, False
        without = self.prompted(prompt, "")
        room = most - len(without)
        if room <= 0:
            what = f"the prompt takes {len(without)} tokens, and all may take {most}: no source has room"
            raise UserError(what, todo="give a larger --max-source-tokens")
        for shorter in self._cut(begun, room + _MERGED):
            ids = self.prompted(prompt, shorter)
            if len(ids) <= most:
                return ids, True
        return without, text != ""

    def _beginning(self, text: str, room: int) -> tuple[str, list[int]]:
        """As much of a text as is sure to hold its first `room` tokens, and its ids, which may be more.

        The rest is not tokenized, because tokens take a hundred times the memory of the
        text.
        """
        end = len(text)
        if self._splits_at_spaces:
            end = _CHARACTERS_A_TOKEN * (room + _MARGIN)
        while True:
            space = _WORD_END.search(text, end)
            end = space.start() if space else len(text)
            ids = self.ids([text[:end]])[0]
            if end == len(text) or len(ids) > room + _MARGIN:
                return text[:end], ids
            end *= 2

    def _cut(self, text: str, most: int) -> Iterator[str]:
        """The beginnings of a text that have 1 to `most` tokens of it, the longest first."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            ids = self.ids([text])[0]
            for count in range(min(most, len(ids)), 0, -1):
                yield self.written(ids[:count]).rstrip("\ufffd")
            return
        with _TOKENIZING:
            backend.encode_special_tokens = self.tokenizer.split_special_tokens
            spans = backend.encode(text, add_special_tokens=False).offsets
        starts = [start for start, _ in spans]
        starts.append(len(text))
        for count in range(min(most, len(spans)), 0, -1):
            _, end = spans[count - 1]
            if starts[count] >= end:  # the next token is of another character
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
    """The special ids that a tokenizer puts before and behind a text, found by those of the text "a"."""
    alone = tokenized(tokenizer, "a")
    ids = list(tokenized(tokenizer, "a", add_special_tokens=True))
    first = next((n for n in range(len(ids)) if ids[n : n + len(alone)] == alone), 0)
    return ids[:first], ids[first + len(alone) :]


def language_id(tokenizer: Any, code: str) -> int:
    """The id of a language, by its code, in a translation model's tokenizer. A UserError if there is no such language."""
    tokens = getattr(tokenizer, "lang_code_to_token", None)
    if not tokens:
        tokens = {token: token for token in tokenizer.all_special_tokens}
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
    """The prompt with ``{source}`` in it: the template, in a `chat` as the user's turn in the model's chat template.

    A UserError if one of the two templates does not take a source once.
    """
    check_template(template)
    if not chat:
        return template
    turn = {"role": "user", "content": template}
    text = _rendered(tokenizer, turn, add_generation_prompt=True)
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
    """The parts of a prompt: in turn texts and places for the words of users.

    In a chat the template is the user's turn behind turns of these `roles`, each of
    which has a place. None is for no chat.
    """
    text = _PLACES.sub(rf"{_PAD}\2{_PAD}", template)
    if roles is not None:
        turns = []
        for number, role in enumerate(roles):
            words = f"{_PAD}{_TURN.format(number)}{_PAD}"
            turns.append({"role": role, "content": words})
        turns.append({"role": "user", "content": text})
        text = _rendered(tokenizer, *turns, add_generation_prompt=True)
    # A text, and then of each place its pads and its name, and the text behind. A pad
    # is missing where the chat template strips the words.
    pieces = _PLACES.split(text)
    parts: list[str | Place] = pieces[:1]
    for first in range(1, len(pieces), 4):
        left, name, right, behind = pieces[first : first + 4]
        parts += [Place(name, left=not left, right=not right), behind]
    return tuple(parts)


@lru_cache(64)
def _behind(
    tokenizer: Any, template: str, alone: str, roles: tuple[str, ...]
) -> Prompt:
    """The prompt of a chat whose template is the user's turn behind turns of these roles.

    `alone` is the prompt without these turns; its end must stay as it is. Only roles go
    through the chat template: what is said in the turns cannot change it, and it runs
    once for all turns of the same roles.
    """
    prompt = Prompt(_parts(tokenizer, template, roles))
    names = [part if isinstance(part, str) else part.name for part in prompt.parts]
    wanted = sorted([SOURCE, *map(_TURN.format, range(len(roles)))])
    taken = sorted(name for name in names[1::2] if name != QUESTION)
    _, _, end = "".join(names).partition(SOURCE)
    if taken != wanted or end != alone.partition(SOURCE)[2]:
        what = "the model's chat template does not take each message once"
        raise UserError(what, where="messages")
    return prompt


def text_end(tokenizer: Any, named: Sequence[int], *, chat: bool) -> int:
    """The main token that ends what a decoder-only model writes: in a `chat` the end of a turn.

    Else, and where turns have no such end, it is one of those `named` in the model's
    files: the tokenizer's eos, if it is among them, or the first.
    """
    usual = tokenizer.eos_token_id if tokenizer.eos_token_id in named else named[0]
    if chat:
        question = {"role": "user", "content": "a"}
        answer = {"role": "assistant", "content": SOURCE}
        _, _, behind = _rendered(tokenizer, question, answer).rpartition(SOURCE)
        # The end of a turn need not have a name among the tokenizer's special tokens.
        added = tokenizer.added_tokens_decoder
        for token in template_ids(tokenizer, behind):
            if token in added and added[token].special:
                return token
    return int(usual)


def template_ids(tokenizer: Any, text: str) -> list[int]:
    """The ids of a part of a template; its special tokens are special."""
    if not text:
        return []
    return list(tokenized(tokenizer, text, split_special_tokens=False))


def tokenized(tokenizer: Any, texts: str | Sequence[str] | None, **options: Any) -> Any:
    """The ids of a text, or of each of several texts, by default without special tokens around them.

    `options` are those of the tokenizer. A UserError if the tokenizer fails at a text.
    """
    options = {"add_special_tokens": False, "verbose": False, **options}
    try:
        with _TOKENIZING:
            return tokenizer(texts, **options)["input_ids"]
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
    """An expression that finds the names of a tokenizer's special tokens in a text, the longest first."""
    names = {*tokenizer.all_special_tokens}
    for token in tokenizer.added_tokens_decoder.values():
        if token.special:
            names.add(token.content)
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def _rendered(tokenizer: Any, *turns: dict[str, str], **options: Any) -> str:
    """A conversation as the tokenizer's chat template writes it; a UserError if there is none, or it fails.

    Each turn has a ``role`` and a ``content``. `options` go to the template.
    """
    if getattr(tokenizer, "chat_template", None) is None:
        what = "the model's tokenizer has no chat template"
        raise UserError(what, todo="leave --chat out")
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
            return plain.from_string(template).render(
                messages=turns,
                tools=None,
                documents=None,
                **tokenizer.special_tokens_map,
                **options,
            )
        except TemplateError:  # it uses what transformers adds, or fails there as well
            written = tokenizer.apply_chat_template(
                list(turns), tokenize=False, chat_template=template, **options
            )
            return str(written)
    except Exception as error:  # whatever a template raises
        what = f"the model's chat template cannot be used: {first_line(error)}"
        raise UserError(what, todo="leave --chat out") from error
