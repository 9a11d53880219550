"""Every family from scratch: made, trained, saved, loaded by plain transformers, and generating; configs that are none."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
import torch

from pipedec_cli.data.records import Family
from pipedec_cli.model.checkpoint import load_checkpoint, save_checkpoint
from pipedec_cli.model.cost import training_cost
from pipedec_cli.model.decoder import Decoder, load
from pipedec_cli.model.teacher_forcing import TeacherForcing, recompute
from pipedec_cli.model.training import _Trainer, train
from tests.checkpoints import QUICK, SMALL, TOY, change, examples_of, fresh_toy, refused, weights_of

FAMILIES = get_args(Family)
_WHOLE, _WINDOW = "full_attention", "sliding_attention"


def fresh(family):
    """A small model of a family for the toy data."""
    return fresh_toy(shape=SMALL._replace(family=family, dropout=0.0))


@pytest.fixture(scope="module", params=FAMILIES)
def saved(request, tmp_path_factory):
    """A folder of each family, after two updates; not to be changed."""
    folder = tmp_path_factory.mktemp(request.param)
    checkpoint = fresh(request.param)
    train(checkpoint, examples_of(checkpoint), [], folder, replace(QUICK, max_steps=2))
    assert any(
        not weight.equal(before)
        for weight, before in zip(*map(_all, (checkpoint, fresh(request.param))), strict=True)
    )
    return folder


def _all(checkpoint):
    return weights_of(checkpoint).values()


def test_what_was_trained_loads_in_plain_transformers_by_its_auto_class_and_generates(saved):
    import transformers

    ours = load_checkpoint(str(saved))
    theirs = getattr(transformers, ours.backbone.auto_class).from_pretrained(saved)
    expected = ours.model.state_dict()
    assert all(weight.equal(expected[name]) for name, weight in theirs.state_dict().items())
    ids = transformers.AutoTokenizer.from_pretrained(saved)("red 3", return_tensors="pt").input_ids
    assert theirs.generate(input_ids=ids, max_new_tokens=3, do_sample=False).shape[0] == 1
    made = list(
        Decoder(ours).texts([source for source, _ in TOY[:3]], Decoder(ours).method(1, max_tokens=12))
    )
    assert len(made) == 3 and all(one.steps for one in made)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_training_takes_is_reckoned_and_less_is_kept_where_it_is_computed_again(family):
    checkpoint = fresh(family)
    examples = examples_of(checkpoint)
    whole = training_cost(checkpoint, examples, QUICK)
    assert whole.parameters == checkpoint.model.num_parameters() and whole.seconds > 0
    recompute(checkpoint.model)
    assert training_cost(checkpoint, examples, QUICK).memory > 0
    assert {parameter.grad for parameter in checkpoint.model.parameters()} == {None}


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_that_fsdp_puts_together_are_saved_as_the_plain_model(tmp_path, family):
    checkpoint = fresh(family)
    trainer = _Trainer.__new__(_Trainer)
    trainer.checkpoint, trainer.args = (
        checkpoint,
        type("Args", (), {"should_save": True, "output_dir": "none"}),
    )
    trainer._save(str(tmp_path), TeacherForcing(checkpoint.model).state_dict())
    again = weights_of(load_checkpoint(str(tmp_path)))
    assert all(weight.equal(again[name]) for name, weight in weights_of(checkpoint).items())


@pytest.mark.parametrize(
    ("family", "values", "told"),
    [
        ("llama", {"eos_token_id": None}, "it names no eos_token_id, which ends a text"),
        ("llama", {"eos_token_id": [1, 10**6]}, "eos_token_id 1000000 is not below vocab_size"),
        ("llama", {"hidden_size": "32"}, "no llama can be built of it"),
        ("qwen3", {"num_hidden_layers": 10**6}, "num_hidden_layers"),
        ("smollm3", {"no_rope_layers": "all"}, "no_rope_layers"),
        ("gemma3", {"query_pre_attn_scalar": -1}, "query_pre_attn_scalar"),
        ("llama", {"layer_types": [_WHOLE, _WHOLE]}, "$.layer_types"),
        ("qwen3", {"layer_types": [_WHOLE, "chunked_attention"]}, "$.layer_types[1]"),
        ("qwen3", {"layer_types": [_WHOLE, _WINDOW], "sliding_window": 9}, "there is no sliding_window"),
        ("qwen3", {"use_sliding_window": None}, "use_sliding_window"),
        ("gemma3", {"layer_types": [_WHOLE, _WINDOW], "sliding_window": None}, "there is no sliding_window"),
        ("t5gemma", {"decoder": {}}, "decoder"),
        ("bart", {"decoder_ffn_dim": 0}, "decoder_ffn_dim"),
        ("bart", {"max_position_embeddings": "many"}, "max_position_embeddings"),
        ("llama", {"model_type": "mistral"}, "'mistral' model, which is not supported"),
    ],
)
def test_a_config_of_which_no_model_can_be_built_is_refused_in_one_line(tmp_path, family, values, told):
    save_checkpoint(fresh(family), tmp_path)
    change(tmp_path / "config.json", **values)
    assert told in refused(tmp_path)


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


_YARN = {"rope_type": "yarn", "rope_theta": 10_000, "factor": 2, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("rope_theta", (0, -3.0, float("nan"), float("inf"), "10000", [])),
        ("factor", (0, -1, 1e-30, float("nan"), float("inf"), "4")),
        ("partial_rotary_factor", (0.5, -1, 3)),
        ("attention_factor", (0, 1e39, float("nan"))),
        ("original_max_position_embeddings", (0, -1, 0.5)),
        ("rope_type", ("proportional", "x", 3)),
        ("sliding_attention", (3, {"rope_theta": -1})),
    ],
)
def test_positions_that_no_frequency_can_be_made_of_are_one_line_with_the_field(tmp_path, field, values):
    save_checkpoint(fresh("llama"), tmp_path)
    change(tmp_path / "config.json", rope_parameters=_YARN)
    assert load_checkpoint(str(tmp_path)).model.config.rope_parameters == _YARN
    for value in values:
        for name in ("rope_parameters", "rope_scaling"):
            change(tmp_path / "config.json", **{name: _YARN | {field: value}})
            line = refused(tmp_path)
            assert line.startswith(f"{tmp_path}/config.json: no llama can be built of it: ")
            assert f"$.{name}.{field}" in line
            change(tmp_path / "config.json", name)


def test_a_byt5_is_a_t5_over_bytes_to_which_special_tokens_in_a_text_are_text(tmp_path):
    from transformers import AutoConfig, AutoModelForSeq2SeqLM, ByT5Tokenizer

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 4}
    ids = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    config = AutoConfig.for_model("t5", vocab_size=384, feed_forward_proj="gated-gelu", **sizes, **ids)
    AutoModelForSeq2SeqLM.from_config(config).save_pretrained(tmp_path)
    ByT5Tokenizer().save_pretrained(tmp_path)
    checkpoint = load_checkpoint(str(tmp_path))
    codec, text = checkpoint.codec(), "héllo </s> <pad> <extra_id_0>"
    assert codec.ids([text]) == [[byte + 3 for byte in text.encode()]]
    assert codec.decode(codec.ids([text])[0]) == text
    decoder = Decoder(checkpoint)
    (made,) = decoder.texts([text], decoder.method(max_tokens=5))
    ids = checkpoint.model.generate(torch.tensor([codec.source(text)[0]]), max_new_tokens=5, do_sample=False)
    tokens = list(made.grid[0][1])
    assert tokens == ids[0, 1 : 1 + len(tokens)].tolist()
