"""Texts to token ids and back, as training and generating must do it alike."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

from pipedec_cli.data.records import whole_text

#: Characters of a long source that are tokenized first, for each token that is kept: more than most tokens have.
_CHARACTERS_A_TOKEN: Final = 8
#: Tokens at the end of a source's beginning that are not relied on: a user's own token may have a space within.
_MARGIN: Final = 256
_WORD_END: Final = re.compile(r"(?<=\S) ")


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

    def source(self, text: str) -> tuple[list[int], bool]:
        """The ids of a source with prefix and <eos>, and whether it was cut.

        Of a long one no more is tokenized than is sure to hold what is kept: tokens take a hundred times the text's memory.
        """
        text, room = self.prefix + text, self.max_source_tokens - 1
        end = _CHARACTERS_A_TOKEN * (room + _MARGIN) if self._splits_at_spaces else len(text)
        while True:
            found = _WORD_END.search(text, end)
            end = found.start() if found else len(text)
            ids = self.ids([text[:end]])[0]
            if end == len(text) or len(ids) > room + _MARGIN:
                return [*ids[:room], self.eos], len(ids) > room
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
