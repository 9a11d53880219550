"""Texts to ids and back without loss, and where training starts: tokenizers, T5's shapes, a checkpoint that is there."""

from functools import cache

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from pipedec_cli.data.records import Segmentation
from pipedec_cli.data.segmentation import make_segmenter
from pipedec_cli.model.checkpoint import MethodSettings
from pipedec_cli.model.scratch import (
    EOS,
    PAD,
    SHAPES,
    UNKNOWN,
    make_model,
    start_checkpoint,
    train_tokenizer,
)
from pipedec_cli.model.text import TextCodec
from tests.checkpoints import TOY, toy_records

TEXTS = [
    "The Mill serves cheap Chinese food.",
    "It is near the river; nobody goes there.",
    "one two three four source",
    "summarize: it",
]


@cache
def codec(prefix="", limit=64):
    return TextCodec(
        train_tokenizer(TEXTS * 3, 400), prefix=prefix, max_source_tokens=limit, eos=EOS
    )


def t5_codec():
    """The tokenizer class of published T5 checkpoints, with a vocabulary of single characters."""
    from transformers import T5Tokenizer

    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0)]
    pieces += [(character, -3.0) for character in "abcdefgopstuxn<>/_0123"]
    tokenizer = T5Tokenizer(vocab=pieces, extra_ids=2)
    return TextCodec(tokenizer, prefix="", max_source_tokens=64, eos=EOS)


@given(st.text())
@example("  two  spaces\n\nand {braces} \t")
@example("<pad></s><unk> are text")
@example("naïve café ½ 漢字 👩‍👩‍👧 \x00 \x1b[31m [bold]")
@example("\ufeff\u00a0\u2028")
@example(" .  , don't do n't ")
def test_any_text_comes_back_but_for_outer_white_space(text):
    (ids,) = codec().ids([text])
    assert codec().decode(ids) == text.strip()
    assert {PAD, EOS, UNKNOWN}.isdisjoint(ids)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (codec, text)
        for text in ("one </s> two", "<pad>", "</s>", "a<unk>b", "<pad></s>")
    ]
    + [
        (t5_codec, text)
        for text in ("no </s> op", "<pad>", "a</s></s>", "<extra_id_0> and", "u<pad>")
    ],
)
def test_special_tokens_in_a_text_are_text(make, text):
    """T5's own vocabulary holds them as pieces, which the unigram model matches in any text."""
    made = make()
    special = set(made.tokenizer.all_special_ids)
    ids = made.ids(["cat", text])
    assert (
        special - {made.tokenizer.unk_token_id} if make is t5_codec else special
    ).isdisjoint(ids[1])
    assert ids[0] == made.ids(["cat"])[0]
    if "<extra_id_0>" not in text:
        assert made.decode(ids[1]) == text


def test_a_word_is_the_same_token_wherever_it_stands_and_a_text_has_no_others():
    word, first, last, nothing = codec().ids(
        ["cheap", "cheap food", "Chinese cheap", ""]
    )
    assert first[: len(word)] == word == last[-len(word) :]
    assert nothing == []
    assert codec().decode([PAD, *word, EOS]) == "cheap"
    # half a surrogate pair becomes a replacement character
    assert codec().ids(["a \ud800 b", "c"]) == codec().ids(["a \ufffd b", "c"])
    assert codec().ids([]) == []


def test_a_source_has_its_prefix_and_its_end_and_is_cut_to_the_limit():
    ids, cut = codec("summarize: ").source("source")
    assert (codec().decode(ids), ids[-1], cut) == ("summarize: source", EOS, False)
    assert codec().source("source")[0] == [*codec().ids(["source"])[0], EOS]
    words = "one two three four"
    whole = codec().ids([words])[0]
    assert len(whole) == 4
    assert codec(limit=4).source(words) == ([*whole[:3], EOS], True)
    assert codec(limit=4).source("one two three") == ([*whole[:3], EOS], False)


@pytest.mark.parametrize("make", [codec, t5_codec])
@pytest.mark.parametrize(
    "text",
    [
        "one two </s> the cheap food " * 4_000,
        " " * 50_000 + "one  \n two\t" * 2_000,
        "½ 漢字 \u0301 é \r\n naïve 👩‍👩‍👧 " * 2_000,
        "a " * 63,
        "a " * 64,
        "one\n" * 5_000,
    ],
    ids=[
        "words",
        "white space",
        "scripts",
        "just short enough",
        "just too long",
        "no spaces",
    ],
)
def test_a_long_source_has_the_ids_that_the_whole_of_it_begins_with(make, text):
    ids = make().ids([text])[0]
    assert make().source(text) == ([*ids[:63], EOS], len(ids) > 63)


def test_of_a_long_source_only_the_beginning_is_tokenized(monkeypatch):
    kind, given = type(codec().tokenizer), []
    tokenize = kind.__call__

    def counted(self, texts, **options):
        given.append(sum(map(len, texts)))
        return tokenize(self, texts, **options)

    monkeypatch.setattr(kind, "__call__", counted)
    codec().source("one two three " * 100_000)
    assert 0 < sum(given) < 10_000
    codec().source(" " * 100_000 + "one")
    assert sum(given) < 300_000  # no more than twice as much each time


def test_the_vocabulary_is_bounded_learnt_from_the_texts_and_the_same_every_time():
    tokenizer = train_tokenizer(TEXTS * 10, 290)
    assert len(tokenizer) == 290
    # asked to, it ends a text with <eos> as T5's does: so does whoever loads the
    # checkpoint in plain transformers
    assert tokenizer("cheap")["input_ids"][-1] == EOS
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (
        PAD,
        EOS,
        UNKNOWN,
    )
    assert len(tokenizer("Chinese", add_special_tokens=False)["input_ids"]) < len(
        "Chinese"
    )
    assert train_tokenizer(iter(TEXTS * 10), 290).get_vocab() == tokenizer.get_vocab()
    nothing = TextCodec(
        train_tokenizer([], 300), prefix="", max_source_tokens=64, eos=EOS
    )
    assert (
        nothing.decode(nothing.ids(["né 漢"])[0]) == "né 漢"
    )  # it has every byte all the same


@pytest.mark.parametrize(
    "name", [name for name, shape in SHAPES.items() if shape.family == "t5"]
)
def test_shapes_are_t5s(name):
    shape = SHAPES[name]
    with torch.device("meta"):  # sizes alone, no memory
        model = make_model(shape, 1001)
    config = model.config
    assert config.model_type == "t5"
    assert (
        config.pad_token_id,
        config.eos_token_id,
        config.decoder_start_token_id,
    ) == (PAD, EOS, PAD)
    assert config.vocab_size == 1008  # a multiple of 8, with room for every token
    assert (
        config.d_model == shape.d_model
        and config.d_kv * config.num_heads >= shape.d_model
    )
    assert len(model.encoder.block) == len(model.decoder.block) == shape.layers
    assert config.dropout_rate == shape.dropout


SETTINGS = MethodSettings(
    "pipelined", 1, Segmentation("phrase", (";",), "; ", sub_max=4), "copy: ", 128, 30
)


def test_a_shape_is_made_fresh_with_a_tokenizer_of_the_data():
    segmenter = make_segmenter("phrase", separators=(";",))
    made = start_checkpoint(
        "scratch-tiny", SETTINGS, toy_records(), seed=4, segmenter=segmenter
    )
    assert (made.settings, made.segmenter, made.name) == (
        SETTINGS,
        segmenter,
        "scratch-tiny",
    )
    assert made.model.config.d_model == 256
    assert made.model.config.vocab_size >= len(made.tokenizer)
    text = made.codec()
    assert all(text.decode(text.ids([source])[0]) == source for source, _ in TOY)
    assert len(text.ids(["green green green"])[0]) == 3  # learnt from the targets
    for seed in (4, 5):  # which alone decides
        other = start_checkpoint("scratch-tiny", SETTINGS, toy_records(), seed)
        assert other.model.shared.weight.equal(made.model.shared.weight) == (seed == 4)


def test_a_checkpoint_that_is_there_keeps_its_weights_and_takes_the_new_settings(
    trained,
):
    segmenter = make_segmenter("phrase", separators=(";",))
    taken = start_checkpoint(trained.name, SETTINGS, [], seed=0, segmenter=segmenter)
    assert (taken.settings, taken.segmenter) == (SETTINGS, segmenter)
    assert taken.model.shared.weight.equal(trained.model.shared.weight)
    assert taken.codec().source("red 3")[0] == trained.codec().source("copy: red 3")[0]
