"""Texts to ids and back: nothing is lost, and nothing in a user's text is taken for a special token."""

from __future__ import annotations

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


@pytest.mark.parametrize("text", ["one </s> two", "<pad>", "</s>", "a<unk>b", "<pad></s>"])
def test_special_tokens_in_a_text_are_text(text: str) -> None:
    codec = scratch_codec()
    ids = codec.ids([text, "one"])
    assert codec.decode(ids[0]) == text
    assert ids[1] == codec.ids(["one"])[0]
    assert set(ids[0]).isdisjoint({0, 1, 2})


@pytest.mark.parametrize("text", ["no </s> op", "<pad>", "a</s></s>", "<extra_id_0> and", "u<pad>"])
def test_special_tokens_in_a_text_are_text_to_t5s_own_tokenizer_too(text: str) -> None:
    """Its vocabulary holds them as pieces, which the unigram model matches in any text."""
    codec = t5_codec()
    special = set(codec.tokenizer.all_special_ids) - {codec.tokenizer.unk_token_id}
    ids = codec.ids(["cat", text])
    assert special.isdisjoint(ids[1])
    assert ids[0] == codec.ids(["cat"])[0]
    if "<extra_id_0>" not in text:
        assert codec.decode(ids[1]) == text


def test_half_a_surrogate_pair_is_encoded_as_a_replacement_character() -> None:
    codec = scratch_codec()
    assert codec.ids(["a \ud800 b", "c"]) == codec.ids(["a \ufffd b", "c"])


def test_no_texts_have_no_ids() -> None:
    assert scratch_codec().ids([]) == []
