"""A tokenizer of transformers again, without transformers: its backend, its special tokens and its chat template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from msgspec import Struct


class TokenizerParts(Struct, frozen=True):
    """All that is needed of a tokenizer of transformers with a backend."""

    backend: str  # the JSON of `tokenizers`, as transformers completed it
    named: dict[str, str]  # bos_token, eos_token, unk_token and others, as a chat template knows them
    special: list[str]  # all special tokens
    added: dict[int, bool]  # ids of added tokens, and whether they are special
    chat_template: str | None


def parts_of(tokenizer: Any) -> TokenizerParts | None:
    """The parts of a tokenizer of transformers; None if it has no backend, or a chat template for each use."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    template = getattr(tokenizer, "chat_template", None)
    if backend is None or not isinstance(template, str | None):
        return None
    named = {name: value for name, value in tokenizer.special_tokens_map.items() if isinstance(value, str)}
    added = {number: token.special for number, token in tokenizer.added_tokens_decoder.items()}
    return TokenizerParts(backend.to_str(), named, list(tokenizer.all_special_tokens), added, template)


class PreparedTokenizer:
    """A tokenizer made of its parts. It has those methods of transformers' tokenizers that generating needs."""

    def __init__(self, parts: TokenizerParts, original: Callable[[], Any]) -> None:
        """Load the backend. `original` loads the tokenizer of transformers, for what is not here."""
        from tokenizers import Tokenizer

        self._original = original
        self.backend_tokenizer = Tokenizer.from_str(parts.backend)
        self.split_special_tokens = False
        self.chat_template, self.special_tokens_map = parts.chat_template, parts.named
        self.all_special_tokens = parts.special
        self.all_special_ids = [self.backend_tokenizer.token_to_id(token) for token in parts.special]
        self.added_tokens_decoder = {
            number: SimpleNamespace(special=special) for number, special in parts.added.items()
        }
        for name in ("bos_token", "eos_token", "unk_token"):
            token = parts.named.get(name)
            setattr(self, f"{name}_id", None if token is None else self.backend_tokenizer.token_to_id(token))

    def __call__(
        self,
        text: str | Sequence[str],
        *,
        add_special_tokens: bool = True,
        split_special_tokens: bool | None = None,
        verbose: bool = True,
    ) -> dict[str, Any]:
        """The ids of a text, or of each of several texts, under ``input_ids``."""
        split = self.split_special_tokens if split_special_tokens is None else split_special_tokens
        self.backend_tokenizer.encode_special_tokens = split
        texts = [text] if isinstance(text, str) else list(text)
        encoded = self.backend_tokenizer.encode_batch(texts, add_special_tokens=add_special_tokens)
        ids = [each.ids for each in encoded]
        return {"input_ids": ids[0] if isinstance(text, str) else ids}

    def decode(
        self, ids: Sequence[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> str:
        """The text of ids, as it is: only without clean-up."""
        assert not clean_up_tokenization_spaces
        return str(self.backend_tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))

    def get_vocab(self) -> dict[str, int]:
        """All tokens and their ids."""
        return dict(self.backend_tokenizer.get_vocab(with_added_tokens=True))

    def get_chat_template(self) -> str | None:
        """The chat template."""
        return self.chat_template

    @cached_property
    def _transformers(self) -> Any:
        return self._original()

    def __getattr__(self, name: str) -> Any:
        """All other attributes are those of the tokenizer of transformers, such as `apply_chat_template`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._transformers, name)
