"""Texts to ids and back: nothing is lost, and nothing in a user's text is taken for a special token."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from pipedec_cli.model.scratch import train_tokenizer
from pipedec_cli.model.text import TextCodec

EOS = 1


@cache
def scratch_codec(prefix: str = "", limit: int = 64) -> TextCodec:
    texts = ["one two three four source", "summarize: it"] * 3
    return TextCodec(train_tokenizer(texts, 320), prefix=prefix, max_source_tokens=limit, eos=EOS)


def t5_codec() -> TextCodec:
    """The tokenizer class of published T5 checkpoints, with a vocabulary of single characters."""
    from transformers import T5Tokenizer

    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0)]
    pieces += [(character, -3.0) for character in "abcdefgopstuxn<>/_0123"]
    tokenizer: Any = T5Tokenizer(vocab=pieces, extra_ids=2)
    return TextCodec(tokenizer, prefix="", max_source_tokens=64, eos=EOS)


def test_a_source_has_its_prefix_and_its_end() -> None:
    plain, prefixed = scratch_codec(), scratch_codec("summarize: ")
    ids, cut = prefixed.source("source")
    assert (prefixed.decode(ids), ids[-1], cut) == ("summarize: source", EOS, 0)
    assert plain.source("source")[0] == [*plain.ids(["source"])[0], EOS]


def test_a_long_source_is_cut_to_the_limit_and_what_was_cut_is_counted() -> None:
    codec = scratch_codec(limit=4)
    words = "one two three four"
    whole = codec.ids([words])[0]
    assert len(whole) == 4
    assert codec.source(words) == ([*whole[:3], EOS], 1)
    assert codec.source("one two three") == ([*whole[:3], EOS], 0)


@pytest.mark.parametrize(
    ("codec", "text"),
    [(scratch_codec, text) for text in ("one </s> two", "<pad>", "</s>", "a<unk>b", "<pad></s>")]
    + [(t5_codec, text) for text in ("no </s> op", "<pad>", "a</s></s>", "<extra_id_0> and", "u<pad>")],
)
def test_special_tokens_in_a_text_are_text(codec: Callable[[], TextCodec], text: str) -> None:
    """T5's own vocabulary holds them as pieces, which the unigram model matches in any text."""
    made = codec()
    special = set(made.tokenizer.all_special_ids)
    ids = made.ids(["cat", text])
    assert (special - {made.tokenizer.unk_token_id} if codec is t5_codec else special).isdisjoint(ids[1])
    assert ids[0] == made.ids(["cat"])[0]
    if "<extra_id_0>" not in text:
        assert made.decode(ids[1]) == text


def test_half_a_surrogate_pair_is_encoded_as_a_replacement_character_and_no_text_as_nothing() -> None:
    codec = scratch_codec()
    assert codec.ids(["a \ud800 b", "c"]) == codec.ids(["a \ufffd b", "c"])
    assert codec.ids([]) == []
