"""Every family from scratch: made, trained, saved, loaded by plain transformers, and generating; configs that are none."""

import json
from dataclasses import replace
from typing import get_args

import pytest
import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Family, Record
from pipedec_cli.decoding.decoder import Decoder, load
from pipedec_cli.model import lora
from pipedec_cli.model.checkpoint import load_checkpoint, save_checkpoint
from pipedec_cli.training.collate import check_ids, collator, encode
from pipedec_cli.training.cost import run_longest
from pipedec_cli.training.loss import TeacherForcing, recompute
from pipedec_cli.training.order import Turn
from pipedec_cli.training.trainer import GridTrainer, train
from tests.checkpoints import (
    QUICK,
    SMALL,
    TOY,
    change,
    examples_of,
    fresh_toy,
    refused,
    toy_records,
    weights_of,
)
from tests.running import extra, read_json
from tests.words import refusing

FAMILIES = get_args(Family)
_WHOLE, _WINDOW = "full_attention", "sliding_attention"


def fresh(family):
    """A small model of a family for the toy data."""
    return fresh_toy(shape=replace(SMALL, family=family, dropout=0.0))


@pytest.fixture(scope="module", params=FAMILIES)
def saved(request, tmp_path_factory):
    """A folder of each family, after two updates; not to be changed."""
    folder = tmp_path_factory.mktemp(request.param)
    checkpoint = fresh(request.param)
    run_longest(checkpoint, examples_of(checkpoint), QUICK, name=str)
    assert {weight.grad for weight in checkpoint.model.parameters()} == {None}
    train(checkpoint, examples_of(checkpoint), [], folder, replace(QUICK, max_steps=2))
    before = weights_of(fresh(request.param))
    assert any(
        not weight.equal(before[name])
        for name, weight in weights_of(checkpoint).items()
    )
    return folder


def test_what_was_trained_loads_in_plain_transformers_by_its_auto_class_and_generates(
    saved,
):
    import transformers

    ours = load_checkpoint(str(saved))
    theirs = getattr(transformers, ours.backbone.auto_class).from_pretrained(saved)
    expected = ours.model.state_dict()
    assert all(
        weight.equal(expected[name]) for name, weight in theirs.state_dict().items()
    )
    ids = transformers.AutoTokenizer.from_pretrained(saved)(
        "red 3", return_tensors="pt"
    ).input_ids
    assert (
        theirs.generate(input_ids=ids, max_new_tokens=3, do_sample=False).shape[0] == 1
    )
    decoder = Decoder(ours)
    made = list(
        decoder.texts(
            [source for source, _ in TOY[:3]], decoder.method(1, max_tokens=12)
        )
    )
    assert len(made) == 3 and all(one.steps for one in made)


def test_what_opens_and_ends_a_text_and_stands_around_a_source_is_the_same_once_saved(
    saved,
):
    family, again = (
        saved.name[:-1],
        load_checkpoint(str(saved)),
    )  # pytest has put a number behind
    for one in (fresh(family), again):
        assert (one.opener, one.eos) == (0 if family in ("t5", "bart") else 3, 1)
        read = "red 3\n\n" if one.backbone.prompted else "red 3"
        assert one.codec().source("red 3")[0] == one.tokenizer(read)["input_ids"], (
            "as transformers has it"
        )
    tables = (
        table
        for name, table in again.model.state_dict().items()
        if "embed_tokens" in name
    )
    assert {table.shape[0] for table in tables} <= {again.model.config.vocab_size}


def test_an_encoder_decoder_that_names_no_opener_begins_as_transformers_does(tmp_path):
    save_checkpoint(fresh("t5gemma"), tmp_path)
    change(tmp_path / "config.json", "decoder_start_token_id")
    assert (
        load_checkpoint(str(tmp_path)).opener
        == load_checkpoint(str(tmp_path)).tokenizer.bos_token_id
        == 3
    )


def test_a_source_stands_between_what_the_tokenizer_puts_around_it_where_the_family_has_it_so(
    tmp_path,
):
    from tokenizers import processors

    checkpoint = fresh("bart")
    checkpoint.tokenizer.backend_tokenizer.post_processor = (
        processors.TemplateProcessing(
            single="<unk> $A </s>", special_tokens=[("<unk>", 2), ("</s>", 1)]
        )
    )
    save_checkpoint(checkpoint, tmp_path)
    ids, cut = load_checkpoint(str(tmp_path)).codec().source("red 3")
    assert (ids[0], ids[-1], cut) == (2, 1, False) and len(ids) > 3


def test_what_an_encoder_has_no_place_for_is_cut_and_said_to_be(tmp_path):
    checkpoint = fresh("bart")
    save_checkpoint(checkpoint, tmp_path)
    decoder = Decoder(load_checkpoint(str(tmp_path)), max_source_tokens=10**6)
    places = decoder.text.max_source_tokens
    assert places == decoder.checkpoint.model.config.max_position_embeddings == 1024
    (made,) = decoder.texts(["red " * 3000], decoder.method(1, max_tokens=2))
    assert made.source_cut and len(decoder.text.source("red " * 3000)[0]) == places
    (example,) = encode(
        checkpoint, [Record("1", "red " * 3000, "red", ("red",), (), "d:1")]
    )
    assert (len(example.source), example.cut) == (places, True)


def test_a_source_ends_where_frequencies_would_turn_in_another_way_for_all_that_are_decoded_together():
    checkpoint = fresh("llama")
    for kind, most in (("longrope", 64), ("dynamic", 32_768), ("yarn", None)):
        checkpoint.model.config.rope_parameters = {"rope_type": kind}
        if kind != "dynamic":
            checkpoint.model.config.rope_parameters[
                "original_max_position_embeddings"
            ] = 64
        assert checkpoint.places == most


def test_special_tokens_beyond_the_weights_are_no_hindrance_and_in_a_prompt_they_are_refused(
    tmp_path,
):
    """BART's tokenizer has <mask> there, and Gemma 3's a token for images."""
    checkpoint = fresh("gemma3")
    size = checkpoint.model.config.vocab_size
    names = [f"<extra_{n}>" for n in range(len(checkpoint.tokenizer), size + 1)]
    checkpoint.tokenizer.add_special_tokens({"additional_special_tokens": names})
    save_checkpoint(checkpoint, tmp_path)
    again = load_checkpoint(str(tmp_path))
    assert again.tokenizer.convert_tokens_to_ids(names[-1]) == size
    assert max(again.codec().source(f"red {names[-1]} 3")[0]) < size, "a text has none"
    with refusing():
        again.prompt(names[-1] + "{source}", chat=False)
    checkpoint.tokenizer.add_tokens(["ordinary"])
    save_checkpoint(checkpoint, tmp_path)
    refused(tmp_path)


def test_layers_of_a_gemma_take_turns_as_its_config_says(tmp_path):
    save_checkpoint(
        fresh_toy(shape=replace(SMALL, family="gemma3", layers=2)), tmp_path
    )
    for more in ({}, {"sliding_window_pattern": 2}):
        change(tmp_path / "config.json", "layer_types", sliding_window=4, **more)
        kinds = load_checkpoint(str(tmp_path)).model.config.layer_types
        assert kinds == ([_WINDOW, _WHOLE] * 2 if more else [_WINDOW] * 4)


def test_how_a_base_sampled_and_where_it_ended_is_not_kept(tmp_path):
    checkpoint = fresh("qwen3")
    checkpoint.model.generation_config.update(
        eos_token_id=2, do_sample=True, num_beams=4, temperature=0.7
    )
    checkpoint.model.config.eos_token_id = 5
    save_checkpoint(checkpoint, tmp_path)
    told = read_json(tmp_path / "generation_config.json")
    assert told["eos_token_id"] == 5
    assert not {"do_sample", "num_beams", "temperature"} & {
        name for name, value in told.items() if value
    }


@pytest.mark.parametrize("how", ["float32", "bfloat16", extra("peft", "adapters")])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_computed_again_changes_no_gradient(family, how):
    gradients = []
    for again in (False, True):
        checkpoint = fresh_toy(shape=replace(SMALL, family=family, dropout=0.1))
        examples = [
            (Turn(0, number), one)
            for number, one in enumerate(examples_of(checkpoint)[:3])
        ]
        if how == "adapters":
            lora.add_adapters(checkpoint.model, 4, seed=0)
        if again:
            recompute(checkpoint.model)
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=how == "bfloat16"):
            loss = TeacherForcing(checkpoint.model).train()(
                **collator(checkpoint, 0)(examples)
            )["loss"]
        loss.backward()
        gradients.append(
            [
                weight.grad
                for weight in checkpoint.model.parameters()
                if weight.requires_grad
            ]
        )
    assert gradients[0] and all(
        all(map(one.equal, more)) for one, *more in zip(*gradients, strict=True)
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_that_fsdp_puts_together_are_saved_as_the_plain_model(tmp_path, family):
    checkpoint = fresh(family)
    trainer = GridTrainer.__new__(GridTrainer)
    trainer.checkpoint = checkpoint
    trainer.args = type("Args", (), {"should_save": True, "output_dir": "none"})
    trainer._save(str(tmp_path), TeacherForcing(checkpoint.model).state_dict())
    again = weights_of(load_checkpoint(str(tmp_path)))
    assert all(
        weight.equal(again[name]) for name, weight in weights_of(checkpoint).items()
    )


@pytest.mark.parametrize(
    ("family", "values", "told"),
    [
        (
            "llama",
            {"eos_token_id": None},
            "it names no eos_token_id, which ends a text",
        ),
        (
            "llama",
            {"eos_token_id": [1, 10**6]},
            "eos_token_id 1000000 is not below vocab_size",
        ),
        (
            "llama",
            {"hidden_size": "32"},
            "no llama can be built of it: Field 'hidden_size' expected int",
        ),
        ("llama", {"head_dim": 7}, "no llama can be built of it: "),
        (
            "llama",
            {"num_attention_heads": 3},
            "no llama can be built of it: The hidden size (32) is not",
        ),
        ("llama", {"num_key_value_heads": 3}, "no multiple of num_key_value_heads 3"),
        ("llama", {"hidden_act": "nope"}, "no llama can be built of it: 'nope'"),
        (
            "gemma3",
            {"hidden_activation": "nope"},
            "no gemma3_text can be built of it: 'nope'",
        ),
        ("bart", {"activation_function": "nope"}, "no bart can be built of it: 'nope'"),
        (
            "bart",
            {"decoder_attention_heads": 3},
            "embed_dim must be divisible by num_heads",
        ),
        ("qwen3", {"num_hidden_layers": 10**6}, "num_hidden_layers"),
        ("smollm3", {"no_rope_layers": "all"}, "no_rope_layers"),
        ("gemma3", {"query_pre_attn_scalar": -1}, "cannot load the checkpoint"),
        (
            "qwen3",
            {"layer_types": [_WHOLE, "chunked_attention"] * 2},
            "layers of the kind 'chunked_attention' cannot decode",
        ),
        (
            "gemma3",
            {"layer_types": [_WHOLE, _WINDOW] * 2, "sliding_window": None},
            "is no sliding_window",
        ),
        ("t5gemma", {"decoder": {}}, "its weights are not of the sizes in config.json"),
        ("bart", {"decoder_ffn_dim": 0}, "decoder_ffn_dim"),
        ("bart", {"max_position_embeddings": "many"}, "max_position_embeddings"),
        (
            "bart",
            {"max_position_embeddings": 10**7},
            "is no whole number from 1 to 65,536",
        ),
        ("llama", {"max_position_embeddings": "512"}, "max_position_embeddings"),
        ("llama", {"model_type": "vit"}, "'vit' model, which is not supported"),
    ],
)
def test_a_config_of_which_no_model_can_be_built_is_refused_in_one_line(
    tmp_path, family, values, told
):
    save_checkpoint(fresh(family), tmp_path)
    (tmp_path / "generation_config.json").unlink()  # which names an end as well
    change(tmp_path / "config.json", **values)
    assert told in refused(tmp_path, words=False)


def test_a_config_need_not_say_how_wide_a_head_is(tmp_path):
    """SmolLM3's does not have to, and transformers does not add it."""
    save_checkpoint(fresh("smollm3"), tmp_path)
    said = [made.grid for made in load(tmp_path, device="cpu").texts(["red 3"])]
    change(tmp_path / "config.json", "head_dim")
    assert [made.grid for made in load(tmp_path, device="cpu").texts(["red 3"])] == said


def test_logits_are_capped_where_a_family_caps_them_alone(tmp_path):
    for family, capped in {"llama": False, "qwen3": False, "gemma3": True}.items():
        save_checkpoint(fresh(family), tmp_path)
        change(tmp_path / "config.json", final_logit_softcapping=0.25)
        checkpoint = load_checkpoint(str(tmp_path))
        model, states = checkpoint.model, 100 * torch.ones(1, 32)
        head = checkpoint.backbone.parts.head(model)
        assert (float(head(states).detach().abs().max()) <= 0.25) is capped


_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000,
    "factor": 2,
    "original_max_position_embeddings": 64,
}


#: Settings of a rope, and values of each that make no sense or are of no use.
ROPES = {
    "rope_theta": (0, -3.0, float("nan"), float("inf"), "10000", []),
    "factor": (0, -1, 1e-30, float("nan"), float("inf"), "4"),
    "partial_rotary_factor": (0.5, -1, 3),
    "attention_factor": (0, 1e39, float("nan")),
    "original_max_position_embeddings": (0, -1, 0.5),
    "rope_type": ("proportional", "default", "x", 3),
}
OTHERS = [
    ("qwen3", {"layer_types": [_WHOLE, _WINDOW]}),
    ("qwen3", {"use_sliding_window": None}),
    ("t5", {"feed_forward_proj": 3}),
    ("t5", {"feed_forward_proj": None}),
    ("t5", {"feed_forward_proj": "nope"}),
    ("t5", {"feed_forward_proj": "gated-nope"}),
    ("t5", {"layer_norm_epsilon": 0}),
    ("t5", {"layer_norm_epsilon": -1e-6}),
    ("t5", {"layer_norm_epsilon": 10**9}),
    ("t5", {"dropout_rate": 2}),
]


def assert_refused_or_harmless(folder):
    """Some values are transformers' to refuse, others make a model that knows nothing."""
    for consume in (True, False):
        try:
            decoder = load(folder, device="cpu", consume=consume)
            made = decoder.texts(["red 3"], decoder.method(1, max_tokens=9))
            assert len(list(made)) == 1
        except UserError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("name", ROPES)
def test_other_ropes_that_make_no_sense_are_one_line_or_do_no_harm(tmp_path, name, key):
    save_checkpoint(fresh("llama"), tmp_path)
    for value in ROPES[name]:
        change(tmp_path / "config.json", **{key: _YARN | {name: value}})
        assert_refused_or_harmless(tmp_path)


@pytest.mark.parametrize(("family", "values"), OTHERS)
def test_other_values_that_make_no_sense_are_one_line_or_do_no_harm(
    tmp_path, family, values
):
    save_checkpoint(fresh(family), tmp_path)
    change(tmp_path / "config.json", **values)
    assert_refused_or_harmless(tmp_path)


def test_a_byt5_is_a_t5_over_bytes_to_which_special_tokens_in_a_text_are_text(tmp_path):
    from transformers import AutoConfig, AutoModelForSeq2SeqLM, ByT5Tokenizer

    sizes = {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 64,
        "num_layers": 2,
        "num_decoder_layers": 1,
        "num_heads": 4,
    }
    ids = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    config = AutoConfig.for_model(
        "t5", vocab_size=384, feed_forward_proj="gated-gelu", **sizes, **ids
    )
    AutoModelForSeq2SeqLM.from_config(config).save_pretrained(tmp_path)
    ByT5Tokenizer().save_pretrained(tmp_path)
    checkpoint = load_checkpoint(str(tmp_path))
    codec, text = checkpoint.codec(), "héllo </s> <pad> <extra_id_0>"
    assert codec.ids([text]) == [[byte + 3 for byte in text.encode()]]
    assert codec.decode(codec.ids([text])[0]) == text
    decoder = Decoder(checkpoint)
    (made,) = decoder.texts([text], decoder.method(max_tokens=5))
    ids = checkpoint.model.generate(
        torch.tensor([codec.source(text)[0]]), max_new_tokens=5, do_sample=False
    )
    tokens = list(made.grid[0][1])
    assert tokens == ids[0, 1 : 1 + len(tokens)].tolist()


def test_a_saved_tokenizer_gives_the_ids_that_were_learnt(saved):
    ours, texts = (
        load_checkpoint(str(saved)),
        [text for source, told in TOY for text in (source, *told)],
    )
    family = saved.name[:-1]
    check_ids(fresh(family), saved, toy_records(), examples_of(fresh(family)))
    for more in ("It's  12 o'clock,\n\nsays Zoë.", " white", "e\u0301"):
        assert ours.codec().ids([*texts, more]) == fresh(family).codec().ids(
            [*texts, more]
        )


def test_a_tokenizer_that_comes_back_with_other_ids_is_refused_with_the_record(
    tmp_path,
):
    checkpoint = fresh("llama")
    save_checkpoint(checkpoint, tmp_path)
    content = read_json(tmp_path / "tokenizer.json")
    content["pre_tokenizer"]["add_prefix_space"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError) as error:
        check_ids(checkpoint, tmp_path, toy_records(), examples_of(checkpoint))
    assert error.value.where == toy_records()[0].where
