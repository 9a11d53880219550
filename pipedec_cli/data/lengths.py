"""How long texts are: in words before there is a tokenizer, in its tokens when there is one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.scripts import count_words


class WordCounter:
    """Counts words, at least one a text: a stand-in for tokens while there is no tokenizer."""

    unit = "words"

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """The length of each text."""
        return [max(1, count_words(text)) for text in texts]


class TokenCounter:
    """Counts the tokens of a tokenizer that transformers loads, special tokens left out, at least one a text."""

    unit = "tokens"

    def __init__(self, name: str) -> None:
        """Load the tokenizer.

        Args:
            name: a folder, which is then read without asking the hub, or a hub name.

        Raises:
            UserError: there is no tokenizer of that name.
        """
        from transformers import AutoTokenizer
        from transformers.utils import logging

        verbosity = logging.get_verbosity()
        logging.set_verbosity_error()  # it warns of texts longer than the model, which are only counted here
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(name, local_files_only=Path(name).exists())
        except Exception as error:  # whatever its parsers and its HTTP client raise
            why = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise UserError(
                f"no tokenizer can be loaded from {name!r}: {why}",
                todo="give a checkpoint folder or a hub name",
            ) from error
        finally:
            logging.set_verbosity(verbosity)

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """The length of each text."""
        if not texts:
            return []
        batch = self._tokenizer(list(texts), add_special_tokens=False, verbose=False)
        return [max(1, len(ids)) for ids in batch["input_ids"]]
