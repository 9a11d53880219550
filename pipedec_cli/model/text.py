"""Texts to token ids and back, as training and generating must do it alike."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from pipedec_cli.data.records import whole_text


class TextCodec:
    """A transformers tokenizer, the prefix of every source, and the number of tokens, <eos> included, that one is cut to."""

    def __init__(self, tokenizer: Any, prefix: str, max_source_tokens: int, eos: int) -> None:
        self.tokenizer = tokenizer
        # Special tokens that stand in a user's text are text: "</s>" must not end a subsequence.
        self.tokenizer.split_special_tokens = True
        self.prefix = prefix
        self.max_source_tokens = max_source_tokens
        self.eos = eos
        self._reserved = frozenset(tokenizer.all_special_ids) - {tokenizer.unk_token_id}

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, without special tokens; half a surrogate pair is encoded as U+FFFD."""
        if not (texts := [whole_text(text) for text in texts]):
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

    def source(self, text: str) -> tuple[list[int], int]:
        """The ids of a source with prefix and <eos>, and how many tokens were cut off."""
        ids = self.ids([self.prefix + text])[0]
        room = self.max_source_tokens - 1
        return [*ids[:room], self.eos], max(0, len(ids) - room)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens and outer white space."""
        options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        return str(self.tokenizer.decode(list(ids), **options)).strip()
