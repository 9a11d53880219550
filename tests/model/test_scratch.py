"""Models and tokenizers made on the spot: no text is lost, and the shapes are T5's."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from pipedec_cli.model.scratch import EOS, PAD, SHAPES, UNKNOWN, Shape, make_model, train_tokenizer
from pipedec_cli.model.text import TextCodec

TEXTS = ["The Mill serves cheap Chinese food.", "It is near the river; nobody goes there."]


@cache
def codec() -> TextCodec:
    return TextCodec(train_tokenizer(TEXTS * 3, 300), prefix="", max_source_tokens=64, eos=EOS)


@given(st.text())
@example("  two  spaces\n\nand {braces} \t")
@example("<pad></s><unk> are text")
@example("naïve café ½ 漢字 👩‍👩‍👧 \x00 \x1b[31m [bold]")
@example("\ufeff\u00a0\u2028")
@example(" .  , don't do n't ")
def test_any_text_comes_back_but_for_outer_white_space(text: str) -> None:
    (ids,) = codec().ids([text])

    assert codec().decode(ids) == text.strip()
    assert {PAD, EOS, UNKNOWN}.isdisjoint(ids)


def test_a_text_by_itself_has_no_tokens_beside_its_own() -> None:
    assert codec().ids(["", "cheap"])[0] == []
    assert codec().decode([PAD, *codec().ids(["cheap"])[0], EOS]) == "cheap"


def test_a_word_is_the_same_token_wherever_it_stands() -> None:
    word, first, last = codec().ids(["cheap", "cheap food", "Chinese cheap"])

    assert first[: len(word)] == word == last[-len(word) :]


def test_the_tokenizer_ends_a_text_with_eos_where_it_is_asked_to() -> None:
    """As T5's does: so does whoever loads the checkpoint in plain transformers."""
    tokenizer: Any = train_tokenizer(TEXTS, 300)

    assert tokenizer("cheap")["input_ids"][-1] == EOS
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (PAD, EOS, UNKNOWN)


def test_the_vocabulary_is_bounded_and_learnt_from_the_texts() -> None:
    tokenizer: Any = train_tokenizer(TEXTS * 10, 290)

    assert len(tokenizer) == 290
    assert len(tokenizer("Chinese", add_special_tokens=False)["input_ids"]) < len("Chinese")


def test_a_tokenizer_of_no_texts_still_has_every_byte() -> None:
    nothing = TextCodec(train_tokenizer([], 300), prefix="", max_source_tokens=64, eos=EOS)

    assert nothing.decode(nothing.ids(["né 漢"])[0]) == "né 漢"


def test_the_tokenizer_is_the_same_every_time() -> None:
    one, other = (train_tokenizer(iter(TEXTS), 300).get_vocab() for _ in range(2))

    assert one == other


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_t5s(name: str) -> None:
    shape = SHAPES[name]

    with torch.device("meta"):  # sizes alone, no memory
        model = make_model(shape, 1001)

    config = model.config
    assert config.model_type == "t5"
    assert (config.pad_token_id, config.eos_token_id, config.decoder_start_token_id) == (PAD, EOS, PAD)
    assert config.vocab_size == 1008  # a multiple of 8, with room for every token
    assert (config.d_model, config.d_kv * config.num_heads) == (shape.d_model, shape.d_model)
    assert len(model.encoder.block) == len(model.decoder.block) == shape.layers
    assert config.dropout_rate == shape.dropout


def test_weights_are_drawn_from_the_seed() -> None:
    shape = Shape(d_model=16, d_ff=16, layers=1, heads=2, vocabulary=16, d_kv=8)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(make_model(shape, 16).shared.weight)

    assert drawn[0].equal(drawn[1])
    assert not drawn[0].equal(drawn[2])
