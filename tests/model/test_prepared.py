"""Weights alone: loaded where kernels need no more, the same texts as of the whole model, and left to transformers else."""

import json
import subprocess
import sys
from importlib import metadata
from itertools import product

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from pipedec_cli.data.errors import UserError
from pipedec_cli.evaluate.metrics.multispan import MultiSpanQA
from pipedec_cli.model import prepared
from pipedec_cli.model.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from pipedec_cli.model.decoder import load
from pipedec_cli.model.prepared import BareModel, read_prepared
from pipedec_cli.model.tokenizer import PreparedTokenizer
from tests.checkpoints import change
from tests.model.chats import CHATML, DATED, foreign
from tests.model.engines import CAUSAL, KINDS, VOCABULARY, needs_kernels, small_model
from tests.model.test_checkpoint import SETTINGS, words_tokenizer

TEXTS = ["w3 w9 w27", "w31", "w8 w8 w12 w30 w5 w6"]

#: Loads a folder in two dtypes, writes a text with each, and says what was imported on the way.
DECODE = """
import json, sys
from pipedec_cli.model.decoder import load
decoders = [load(sys.argv[1], dtype=dtype, device="cpu") for dtype in ("float32", "int8")]
tokens = [[made.tokens for made in decoder.texts(["w3 w9"])] for decoder in decoders]
heavy = [name for name in ("transformers", "nltk", "sympy", "scipy", "accelerate") if name in sys.modules]
print(json.dumps([tokens, heavy]))
"""


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path_factory):
    """What other tests prepared must not count; the kernels stay where they are."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(prepared, "cache_folder", lambda: folder)
    return folder


def saved(folder, kind="t5"):
    settings = msgspec.structs.replace(SETTINGS, delay="any", source_prefix="")
    model = small_model(kind)
    vocabulary = model.config.vocab_size
    save_checkpoint(Checkpoint(model, words_tokenizer(vocabulary), settings, "x"), folder)
    return folder


def bare(folder, dtype="float32"):
    """A decoder of weights alone, which the first load prepares."""
    load(folder, dtype=dtype, device="cpu")
    return load(folder, dtype=dtype, device="cpu")


def is_bare(folder):
    return isinstance(load(folder, device="cpu").checkpoint.model, BareModel)


def save_with(folder, weights):
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@needs_kernels
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *product([*KINDS, *CAUSAL], ["float32"]),
        *product(["t5", "llama, no panel", "gemma3_text, windows"], ["int8"]),
    ],
)
def test_weights_alone_write_what_the_whole_model_writes(kind, dtype, tmp_path):
    folder = saved(tmp_path, kind)
    decoders = bare(folder, dtype), load(folder, dtype=dtype, device="cpu", consume=False)
    assert [isinstance(each.checkpoint.model, BareModel) for each in decoders] == [True, False]
    made = [[(one.text, one.grid) for one in decoder.texts(TEXTS, batch_size=2)] for decoder in decoders]
    assert made[0] == made[1]


@needs_kernels
@pytest.mark.parametrize("kind", ["t5", "llama"])
def test_a_second_start_imports_nothing_of_transformers(kind, tmp_path):
    command, ran = [sys.executable, "-c", DECODE, str(saved(tmp_path, kind))], []
    for _ in range(2):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        ran.append(json.loads(done.stdout))
    here = [load(tmp_path, dtype=dtype, device="cpu").texts(["w3 w9"]) for dtype in ("float32", "int8")]
    assert ran[1] == [[[made.tokens for made in texts] for texts in here], []]
    assert ran[0][0] == ran[1][0]


@pytest.mark.parametrize("kind", [*KINDS, "gemma3_text, windows"])
def test_they_are_what_transformers_loads(kind, tmp_path):
    folder = saved(tmp_path, kind)
    checkpoint = load_checkpoint(str(folder))
    theirs = checkpoint.model.state_dict()
    for dtype in (torch.float32, torch.bfloat16):
        model = read_prepared(folder).load_model(folder, dtype)
        mine = dict(model.named_parameters(remove_duplicate=False))
        assert set(mine) == set(theirs)
        assert all(torch.equal(weight, theirs[name].to(dtype)) for name, weight in mine.items())
        assert vars(model.config) == json.loads(json.dumps(checkpoint.model.config.to_dict()))


def test_a_weight_that_the_first_t5s_hold_and_nothing_reads_is_passed_over(tmp_path):
    weights = load_file(saved(tmp_path) / "model.safetensors")
    unread = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.ones(8, 4)}
    save_with(tmp_path, weights | unread)
    model = bare(tmp_path).checkpoint.model
    assert {name for name, _ in model.named_parameters()} <= set(weights)


@pytest.mark.parametrize(
    "hurt",
    [
        {"decoder.block.1.layer.2.layer_norm.weight": None},
        {"decoder.block.2.layer.0.layer_norm.weight": torch.ones(32)},
        {"decoder.final_layer_norm.weight": torch.ones(31)},
        {"shared.weight": torch.ones(VOCABULARY, 32, dtype=torch.int64)},
    ],
    ids=["missing", "one more", "another size", "integers"],
)
def test_other_weights_than_before_are_left_to_transformers_and_its_words(hurt, tmp_path):
    weights = load_file(saved(tmp_path) / "model.safetensors") | hurt
    load(tmp_path, device="cpu")
    save_with(tmp_path, {name: weight for name, weight in weights.items() if weight is not None})
    assert read_prepared(tmp_path).load_model(tmp_path, torch.float32) is None
    if "shared.weight" in hurt:
        return  # which transformers converts
    with pytest.raises(UserError, match="cannot load the checkpoint") as error:
        load(tmp_path, device="cpu")
    with pytest.raises(UserError) as whole:
        load_checkpoint(str(tmp_path))
    assert str(error.value) == str(whole.value)


def test_a_file_of_weights_that_is_none_is_left_to_transformers(tmp_path):
    load(saved(tmp_path), device="cpu")
    (tmp_path / "model.safetensors").write_bytes(b"nothing of the kind")
    assert read_prepared(tmp_path).load_model(tmp_path, torch.float32) is None


@needs_kernels
def test_other_files_beside_the_weights_are_read_anew(tmp_path):
    assert [is_bare(saved(tmp_path)), is_bare(tmp_path)] == [False, True]
    change(tmp_path / "tokenizer_config.json", eos_token="w5")
    assert [is_bare(tmp_path), is_bare(tmp_path)] == [False, True]
    assert load(tmp_path, device="cpu").text.tokenizer.special_tokens_map["eos_token"] == "w5"


@needs_kernels
def test_a_damaged_file_of_the_cache_is_made_again_and_older_ones_are_removed(tmp_path, cache, monkeypatch):
    load(saved(tmp_path), device="cpu")
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    for content in (whole[:1000], whole.replace(b"1e-6", b"1e-1"), b""):
        kept.write_bytes(content)
        assert [is_bare(tmp_path), is_bare(tmp_path)] == [False, True]
    monkeypatch.setattr(prepared, "MOST_KEPT", 1)
    change(tmp_path / "tokenizer_config.json", eos_token="w5")
    assert [is_bare(tmp_path), is_bare(tmp_path)] == [False, True]
    assert [path.name == kept.name for path in cache.iterdir()] == [False]


@needs_kernels
def test_what_others_can_write_is_not_read(tmp_path, cache):
    load_checkpoint(str(saved(tmp_path)))
    (kept,) = cache.iterdir()
    assert read_prepared(tmp_path) is not None
    kept.chmod(0o666)
    assert read_prepared(tmp_path) is None


@needs_kernels
def test_without_kernels_or_for_what_they_cannot_compute_it_is_the_whole_model(monkeypatch, tmp_path):
    assert [is_bare(saved(tmp_path)), is_bare(tmp_path)] == [False, True]
    monkeypatch.setenv("PIPEDEC_NATIVE", "0")
    assert not is_bare(tmp_path)
    monkeypatch.delenv("PIPEDEC_NATIVE")
    change(tmp_path / "config.json", feed_forward_proj="silu", dense_act_fn="silu")
    assert [is_bare(tmp_path), is_bare(tmp_path)] == [False, False]
    assert list(load(tmp_path, device="cpu").texts(TEXTS))


@needs_kernels
def test_a_source_tree_that_is_not_installed_loads_and_scores_as_well(monkeypatch, tmp_path):
    def distribution(name, original=metadata.distribution):
        if name == "pipedec":
            raise metadata.PackageNotFoundError(name)
        return original(name)

    monkeypatch.setattr(metadata, "distribution", distribution)
    assert [is_bare(saved(tmp_path)), is_bare(tmp_path)] == [False, True]
    assert MultiSpanQA().signature.endswith("|pipedec:source")


@needs_kernels
@pytest.mark.parametrize("template", [CHATML, DATED, None])
def test_the_tokenizer_and_its_chats_are_those_of_transformers(template, tmp_path):
    """A plain template is rendered here, any other by transformers."""
    load_checkpoint(str(foreign(tmp_path, template=template)))
    mine, theirs = load(tmp_path, device="cpu"), load(tmp_path, device="cpu", consume=False)
    assert [isinstance(each.text.tokenizer, PreparedTokenizer) for each in (mine, theirs)] == [True, False]
    asked = ["The Mill <|im_end|> is cheap </s>", "", "Grüße \U0001f600  a\n b"]
    for decoder in (mine, theirs):
        if template:
            decoder.read_sources("Say {source}!", chat=True)
    assert mine.text.prompt == theirs.text.prompt and mine.checkpoint.eos == theirs.checkpoint.eos
    ids = [mine.text.source(text)[0] for text in asked]
    assert ids == [theirs.text.source(text)[0] for text in asked]
    assert [mine.text.decode(each) for each in ids] == [theirs.text.decode(each) for each in ids]
    tokenizers = mine.text.tokenizer, theirs.text.tokenizer
    for name in ("all_special_ids", "unk_token_id", "bos_token_id", "eos_token_id"):
        assert getattr(tokenizers[0], name) == getattr(tokenizers[1], name)
    assert tokenizers[0].get_vocab() == tokenizers[1].get_vocab()
