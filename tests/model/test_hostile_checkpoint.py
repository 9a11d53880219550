"""Checkpoints that somebody else made: nothing in them is run, read beyond its end, or taken for what it is not."""

import base64
import json
from contextlib import suppress

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file, save_file

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.segmentation import token_counter
from pipedec_cli.decoding.decoder import Decoder, load
from pipedec_cli.model.checkpoint import (
    PLAIN,
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from tests.checkpoints import SOURCES, change, refused, tiny_checkpoint
from tests.model.engines import FAMILIES, KINDS, VOCABULARY, small_model
from tests.model.test_checkpoint import words_tokenizer
from tests.words import refusing

INFINITE, NONE = float("inf"), float("nan")


class Hostile:
    """What runs when it is unpickled by one who trusts it."""


@pytest.fixture
def folder(tmp_path):
    return tiny_checkpoint(tmp_path / "given")


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("vocab_size", (0, -1, 1.5, "427", None, [427], True, 10**9)),
        ("d_model", (0, "32", 10**9)),
        ("d_kv", (0, [8])),
        ("d_ff", (-64, {})),
        ("num_heads", (0, None)),
        ("num_layers", (0, 10**9)),
        ("num_decoder_layers", (0, "2", 10**9)),
        ("relative_attention_num_buckets", (0, 1, 10**9)),
        ("relative_attention_max_distance", (0, -5, 16, 10**9, 10**20)),
        ("layer_norm_epsilon", (INFINITE, NONE, "small")),
        ("dropout_rate", (NONE,)),
        ("pad_token_id", (-1, 427, [0], "x")),
        ("eos_token_id", (-1, 427, 10**20, None, [], [427], [None], 1.0)),
        ("decoder_start_token_id", (-1, 427, 10**9, [0], "x", NONE, True)),
    ],
)
def test_a_number_outside_its_bounds_is_one_line_with_file_and_field(
    folder, field, values
):
    (folder / "generation_config.json").unlink()  # which names an end as well
    for value in values:
        change(folder / "config.json", **{field: value})
        line = refused(folder)
        assert line.startswith(f"{folder}/config.json: no t5 can be built of it: ")


def test_sizes_and_layers_are_held_against_the_weights(folder):
    given = (folder / "config.json").read_bytes()
    fields = {
        "vocab_size": 430,
        "d_kv": 4,
        "num_heads": 2,
        "relative_attention_num_buckets": 16,
    }
    for field, value in fields.items():
        change(folder / "config.json", **{field: value})
        refused(folder)
        (folder / "config.json").write_bytes(given)
    change(folder / "config.json", num_layers=3)
    refused(folder)
    change(folder / "config.json", num_layers=2, num_decoder_layers=1)
    refused(folder)


@pytest.mark.parametrize("kind", [*KINDS, *FAMILIES])
def test_no_family_allocates_what_its_config_claims_and_its_weights_do_not_hold(
    kind, tmp_path, monkeypatch
):
    """Transformers would draw matrices of that size by chance, with gigabytes of memory, before it compares them."""
    settings = replace(PLAIN, decoder="pipelined")
    save_checkpoint(
        Checkpoint(small_model(kind), words_tokenizer(VOCABULARY), settings, "x"),
        tmp_path,
    )
    given = json.loads((tmp_path / "config.json").read_bytes())
    loaded = lambda *_, **__: pytest.fail("loaded")  # noqa: E731
    monkeypatch.setattr("transformers.PreTrainedModel.from_pretrained", loaded)
    fields = {
        "vocab_size",
        "d_model",
        "d_ff",
        "d_kv",
        "hidden_size",
        "head_dim",
        "intermediate_size",
    }
    fields -= {
        {"qwen3_moe": "intermediate_size", "stablelm": "head_dim"}.get(kind)
    }  # which they do not read
    for part in [given["encoder"], given["decoder"]] if "encoder" in given else [given]:
        for field in fields & part.keys():
            before, part[field] = part[field], 1 << 20
            (tmp_path / "config.json").write_text(json.dumps(given))
            line = refused(tmp_path, words=False)
            assert (
                "its weights are not of the sizes in config.json" in line
                or "can be built of it" in line
            )
            part[field] = before


@pytest.mark.parametrize(
    "content",
    [Hostile(), {"a": torch.ones(99)}, "hello"],
    ids=["an object", "cut short", "a text"],
)
def test_weights_in_a_pickle_that_cannot_be_read_are_refused_in_plain_words(
    folder, content
):
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    torch.save(content, path)
    if content == "hello":
        path.write_text(content, encoding="utf-8")
    elif isinstance(content, dict):
        path.write_bytes(path.read_bytes()[:300])
    refused(folder)


def test_what_no_t5_has_is_left_aside(folder):
    """Other settings of transformers cannot turn up in it by the back door."""
    others = {
        "num_labels": 10**9,
        "_attn_implementation": "nobody/kernels",
        "quantizer": 1,
    }
    change(folder / "config.json", attribute_map={"vocab_size": "d_ff"}, **others)
    config = load_checkpoint(str(folder)).model.config
    assert (config.vocab_size, config.d_model, config.num_labels) == (427, 32, 2)
    change(folder / "config.json", tokenizer_class="T5Tokenizer")  # as UMT5 does
    assert load_checkpoint(str(folder)).model.config.tokenizer_class == "T5Tokenizer"


def test_the_opening_token_may_stand_in_generation_config_json_or_be_the_padding(
    folder,
):
    change(folder / "config.json", "decoder_start_token_id")
    change(folder / "generation_config.json", decoder_start_token_id=5)
    assert load_checkpoint(str(folder)).bos == 5
    change(folder / "generation_config.json", decoder_start_token_id=427)
    refused(folder)
    (folder / "generation_config.json").unlink()
    change(folder / "config.json", pad_token_id=3)
    assert load_checkpoint(str(folder)).bos == 3


def test_a_tokenizer_with_ids_beyond_the_embedding_is_refused(folder):
    path = folder / "tokenizer.json"
    given = json.loads(path.read_text(encoding="utf-8"))
    model, added = given["model"], given["added_tokens"]
    change(path, model={**model, "vocab": {**model["vocab"], "a": 427}})
    refused(folder)
    beyond = {**added[0], "content": "zzz", "id": 427}
    change(path, model=model, added_tokens=[*added, {**beyond, "special": False}])
    refused(folder)
    change(path, added_tokens=[*added, beyond])
    assert max(load_checkpoint(str(folder)).codec().source("a zzz b")[0]) < 427, (
        "a special one is in no text"
    )


def test_an_embedding_larger_than_the_tokenizer_is_usual(folder):
    """T5 has 32,128 rows for 32,100 tokens, mT5 250,112 for 250,100."""
    weights = load_file(folder / "model.safetensors")
    weights["shared.weight"] = torch.cat(
        [weights["shared.weight"], torch.zeros(13, 32)]
    )
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    change(folder / "config.json", vocab_size=440)
    (result,) = Decoder(load_checkpoint(str(folder))).texts(SOURCES[:1])
    assert result.segments == ("The Mill is cheap.", "It serves Chinese food.")


@pytest.fixture
def code(folder, monkeypatch):
    """Puts code into the folder that leaves a mark where it is run; whoever is asked says yes."""
    mark = folder.parent / "it was run"
    for name in (
        "configuration_x.py",
        "tokenization_x.py",
        "modeling_x.py",
        "custom_generate/generate.py",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"open({str(mark)!r}, 'w')\nclass X: pass\n")
    asked = []
    monkeypatch.setattr("builtins.input", lambda text="": asked.append(text) or "y")
    yield folder
    assert not mark.exists()
    assert asked == []


def test_code_of_a_model_or_a_tokenizer_is_not_run_and_nobody_is_asked(code):
    own = {"AutoConfig": "configuration_x.X", "AutoModelForSeq2SeqLM": "modeling_x.X"}
    change(code / "config.json", auto_map=own)
    assert (
        type(load_checkpoint(str(code)).model).__name__ == "T5ForConditionalGeneration"
    )
    own = {"AutoTokenizer": ["tokenization_x.X", None]}
    change(code / "tokenizer_config.json", tokenizer_class="X", auto_map=own)
    for read in (load_checkpoint, token_counter):
        with suppress(UserError):
            read(str(code))
    change(code / "config.json", model_type="x")
    refused(code)


@pytest.mark.parametrize("number", [NONE, INFINITE, -INFINITE])
def test_a_weight_that_is_no_number_is_noticed_when_the_weights_are_loaded(
    folder, number
):
    weights = load_file(folder / "model.safetensors")
    name = "decoder.block.1.layer.2.DenseReluDense.wo.weight"
    weights[name][3, 5] = number
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    refused(folder)
    with refusing():
        load(folder, device="cpu")


TEN = {"type": "Replace", "pattern": {"Regex": "."}, "content": "aaaaaaaaaa"}
MANY = {"type": "Replace", "pattern": {"String": "e"}, "content": "y" * 2_000}
CHARSMAP = base64.b64encode(bytes(4) + b"y" * 2_000).decode()
AROUND = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "</s>", "type_id": 0}}] * 1_000,
}


@pytest.mark.parametrize(
    "part",
    [
        {"normalizer": {"type": "Sequence", "normalizers": [TEN] * 9}},
        {"normalizer": MANY},
        {"normalizer": {"type": "Prepend", "prepend": "y" * 2_000}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}},
        {"decoder": {"type": "Sequence", "decoders": [TEN] * 9}},
        {"post_processor": AROUND},
    ],
)
def test_a_tokenizer_that_makes_much_of_a_short_text_is_refused_before_it_is_used(
    folder, part
):
    """Nine steps that make ten letters of one would take a gigabyte a letter."""
    change(folder / "tokenizer.json", **part)
    refused(folder)
    with refusing():
        token_counter(str(folder))


def test_a_token_of_many_characters_is_refused(folder):
    path = folder / "tokenizer.json"
    model = json.loads(path.read_text(encoding="utf-8"))["model"]
    change(path, model={**model, "vocab": {**model["vocab"], "y" * 2_000: 5}})
    refused(folder)


def test_a_text_that_a_regular_expression_of_the_tokenizer_takes_too_long_in_is_one_line(
    folder,
):
    nested = {"type": "Replace", "pattern": {"Regex": "(x+x+)+y"}, "content": "z"}
    change(folder / "tokenizer.json", normalizer=nested)
    with refusing():
        load_checkpoint(str(folder)).codec().source("x" * 4_000)
