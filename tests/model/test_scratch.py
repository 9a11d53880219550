"""Where training starts: tokenizers that lose no text, T5's shapes, or a checkpoint that is there."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Segmentation
from pipedec_cli.data.segmentation import make_segmenter
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings
from pipedec_cli.model.scratch import EOS, PAD, SHAPES, UNKNOWN, make_model, start_checkpoint, train_tokenizer
from pipedec_cli.model.text import TextCodec
from tests.checkpoints import TOY, toy_records

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


def test_a_word_is_the_same_token_wherever_it_stands_and_a_text_has_no_others() -> None:
    word, first, last, nothing = codec().ids(["cheap", "cheap food", "Chinese cheap", ""])
    assert first[: len(word)] == word == last[-len(word) :]
    assert nothing == []
    assert codec().decode([PAD, *word, EOS]) == "cheap"


def test_the_tokenizer_ends_a_text_with_eos_where_it_is_asked_to() -> None:
    """As T5's does: so does whoever loads the checkpoint in plain transformers."""
    tokenizer: Any = train_tokenizer(TEXTS, 300)
    assert tokenizer("cheap")["input_ids"][-1] == EOS
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (PAD, EOS, UNKNOWN)


def test_the_vocabulary_is_bounded_learnt_from_the_texts_and_the_same_every_time() -> None:
    tokenizer: Any = train_tokenizer(TEXTS * 10, 290)
    assert len(tokenizer) == 290
    assert len(tokenizer("Chinese", add_special_tokens=False)["input_ids"]) < len("Chinese")
    assert train_tokenizer(iter(TEXTS * 10), 290).get_vocab() == tokenizer.get_vocab()
    nothing = TextCodec(train_tokenizer([], 300), prefix="", max_source_tokens=64, eos=EOS)
    assert nothing.decode(nothing.ids(["né 漢"])[0]) == "né 漢"  # it has every byte all the same


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


SETTINGS = MethodSettings("pipelined", 1, Segmentation("phrase", (";",), "; ", sub_max=4), "copy: ", 128, 30)


def test_a_shape_is_made_fresh_with_a_tokenizer_of_the_data() -> None:
    segmenter = make_segmenter("phrase", separators=(";",))
    made = start_checkpoint("scratch-tiny", SETTINGS, toy_records(), seed=4, segmenter=segmenter)
    assert (made.settings, made.segmenter, made.name) == (SETTINGS, segmenter, "scratch-tiny")
    assert made.model.config.d_model == 256
    assert made.model.config.vocab_size >= len(made.tokenizer)
    text = made.codec()
    assert all(text.decode(text.ids([source])[0]) == source for source, _ in TOY)
    assert len(text.ids(["green green green"])[0]) == 3  # learnt from the targets
    same, other = (start_checkpoint("scratch-tiny", SETTINGS, toy_records(), seed) for seed in (4, 5))
    assert same.model.shared.weight.equal(made.model.shared.weight)  # which the seed alone decides
    assert not other.model.shared.weight.equal(made.model.shared.weight)


def test_a_checkpoint_that_is_there_keeps_its_weights_and_takes_the_new_settings(trained: Checkpoint) -> None:
    segmenter = make_segmenter("phrase", separators=(";",))
    taken = start_checkpoint(trained.name, SETTINGS, [], seed=0, segmenter=segmenter)
    assert (taken.settings, taken.segmenter) == (SETTINGS, segmenter)
    assert taken.model.shared.weight.equal(trained.model.shared.weight)
    assert taken.codec().source("red 3")[0] == trained.codec().source("copy: red 3")[0]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("scratch-huge", "no shape 'scratch-huge'; use one of scratch-tiny, scratch-small"),
        ("no-such-folder", "no checkpoint folder"),
    ],
)
def test_a_start_that_is_not_there_is_refused(name: str, what: str) -> None:
    with pytest.raises(UserError, match=what):
        start_checkpoint(name, SETTINGS, toy_records(), seed=0)
