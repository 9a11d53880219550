"""Records into token ids, and token ids into training batches (Eq. 5)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from pipedec_cli.data.records import DecoderKind, Record, whole_text
from pipedec_cli.model.layers import PADDING
from pipedec_cli.pipeline.schedule import Fixed, Schedule, Whole, draw_schedules, place

IGNORED = -100


@dataclass(frozen=True, slots=True)
class Encoded:
    """One example in token ids.

    Attributes:
        source: the source with its <eos>, cut to the model's limit.
        texts: the ids of each subsequence, without <bos> and <eos>; the whole target as one for the sequential
            decoder.
        cut: how many source tokens were cut off.
    """

    source: list[int]
    texts: tuple[list[int], ...]
    cut: int = 0


class TextEncoder:
    """Texts to ids and back, as training and generating must do it alike."""

    def __init__(self, tokenizer: Any, *, prefix: str, max_source_tokens: int, eos: int) -> None:
        """Wrap a tokenizer.

        Args:
            tokenizer: a transformers tokenizer.
            prefix: put before every source (T5's task prefixes).
            max_source_tokens: longer sources are cut to this many, <eos> included.
            eos: the id that ends a source.
        """
        self.tokenizer = tokenizer
        # Special tokens that stand in a user's text are text: "</s>" must not end a subsequence.
        self.tokenizer.split_special_tokens = True
        self.prefix = prefix
        self.max_source_tokens = max_source_tokens
        self.eos = eos
        self._reserved = frozenset(tokenizer.all_special_ids) - {tokenizer.unk_token_id}

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, without special tokens; half a surrogate pair is encoded as U+FFFD."""
        if not texts:
            return []
        texts = [whole_text(text) for text in texts]
        encoded: list[list[int]] = self.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        for row, ids in enumerate(encoded):
            if not self._reserved.isdisjoint(ids) and self._literal is not None:
                encoded[row] = self._literal.encode(texts[row], add_special_tokens=False).ids
        return encoded

    @cached_property
    def _literal(self) -> Any | None:
        """A copy of a unigram tokenizer to which special tokens in a text are text; None for other tokenizers.

        T5's vocabulary has its special tokens among the pieces of the unigram model, which matches them in any text,
        whatever `split_special_tokens` says; sentencepiece itself never does. In the copy those pieces have names
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
                piece[0] = f"\U0010ffff{number}"  # U+10FFFF is no character
        for token in content["added_tokens"]:
            if token["content"] in special:
                token["content"] = f"\U0010ffff{token['id']}"
        return Tokenizer.from_str(json.dumps({**content, "post_processor": None}))

    def source(self, text: str) -> tuple[list[int], int]:
        """The ids of a source with prefix and <eos>, and how many tokens were cut off."""
        ids = self.ids([self.prefix + text])[0]
        room = self.max_source_tokens - 1
        return [*ids[:room], self.eos], max(0, len(ids) - room)

    def encode(self, record: Record, decoder: DecoderKind) -> Encoded:
        """A record for training; segments that hold no token are left out."""
        source, cut = self.source(record.source)
        if decoder == "sequential":
            return Encoded(source, (self.ids([record.target or ""])[0],), cut)
        return Encoded(source, tuple(ids for ids in self.ids(record.target_segments or ()) if ids), cut)

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens and outer white space."""
        decoded: str = self.tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return decoded.strip()


Scheduler = Callable[[Sequence[Encoded]], Sequence[Schedule]]


def scheduler(decoder: DecoderKind, delay: int | Literal["any"], seed: int) -> Scheduler:
    """How a training batch gets its schedules.

    The draw depends on the seed and on what is in the batch, and on nothing else: a resumed run draws what an
    undisturbed one would have drawn.
    """
    if decoder == "sequential":
        return lambda batch: [Whole()] * len(batch)
    if delay != "any":
        return lambda batch: [Fixed(delay)] * len(batch)

    def drawn(batch: Sequence[Encoded]) -> Sequence[Schedule]:
        content = [example.source[:8] + example.source[-8:] for example in batch]
        rng = random.Random(f"{seed} {content}")  # noqa: S311 - chance, not secrecy
        return draw_schedules(rng, len(batch), 1 + max(len(example.texts) for example in batch))

    return drawn


@dataclass(frozen=True, slots=True)
class Collator:
    """Examples to one batch of tensors, each target laid out in its grid.

    Attributes:
        scheduler: the schedules of a batch.
        bos: the id that opens a subsequence.
        eos: the id that ends one.
        pad: fills up sources and grids; any id serves, since padding is told by position.
        closing: whether the empty subsequence Y^F closes every target; not so for the sequential decoder.
    """

    scheduler: Scheduler
    bos: int
    eos: int
    pad: int
    closing: bool

    def __call__(self, batch: Sequence[Encoded]) -> dict[str, Tensor]:
        """Tensors for `teacher_forcing.TeacherForcing.forward`, all int64 [batch, longest]."""
        columns: dict[str, list[list[int]]] = {
            name: []
            for name in ("input_ids", "attention_mask", "decoder_input_ids", "subsequence", "time", "labels")
        }
        for example, schedule in zip(batch, self.scheduler(batch), strict=True):
            columns["input_ids"].append(example.source)
            columns["attention_mask"].append([1] * len(example.source))
            for name, values in self._grid(example.texts, schedule).items():
                columns[name].append(values)
        filling = {
            "input_ids": self.pad,
            "attention_mask": 0,
            "decoder_input_ids": self.pad,
            "subsequence": PADDING,
            "time": PADDING,
            "labels": IGNORED,
        }
        return {name: _padded(rows, filling[name]) for name, rows in columns.items()}

    def _grid(self, texts: Sequence[list[int]], schedule: Schedule) -> dict[str, list[int]]:
        """Tokens, places and labels of one target: [<bos>, Y_i, <eos>] for each i, and Y^F."""
        closed = [*texts, []] if self.closing else list(texts)
        starts = place(schedule, [len(text) for text in closed])
        grid: dict[str, list[int]] = {
            name: [] for name in ("decoder_input_ids", "subsequence", "time", "labels")
        }
        for number, (start, text) in enumerate(zip(starts, closed, strict=True), start=1):
            tokens = [self.bos, *text, self.eos]
            grid["decoder_input_ids"] += tokens
            grid["subsequence"] += [number] * len(tokens)
            grid["time"] += range(start, start + len(tokens))
            grid["labels"] += [*tokens[1:], IGNORED]
        return grid


def _padded(rows: Sequence[Sequence[int]], filling: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[filling] * (longest - len(row))] for row in rows], dtype=torch.long)
