"""Checkpoints: what is saved comes back, here and in plain transformers; what cannot be loaded is one clear line."""

import copy
import json
import socket
import time
from dataclasses import replace

import msgspec
import pytest
import torch

from pipedec_cli.data.records import Segmentation
from pipedec_cli.data.segmentation import make_segmenter
from pipedec_cli.model.checkpoint import (
    Checkpoint,
    MethodSettings,
    load_checkpoint,
    save_checkpoint,
)
from tests.checkpoints import change, fresh_toy, refused
from tests.model.engines import KINDS, SOURCES, VOCABULARY, small_model

PHRASES = Segmentation("phrase", (";", " / "), "; ", sub_max=7)
SETTINGS = MethodSettings(
    "pipelined", 2, PHRASES, "summarize: ", max_source_tokens=300, time_max=33
)
IN_CONFIG = msgspec.to_builtins(SETTINGS)


@pytest.fixture
def saved(tmp_path):
    """A folder as `pipedec train` leaves it."""
    save_checkpoint(replace(fresh_toy(), settings=SETTINGS), tmp_path / "saved")
    return tmp_path / "saved"


def logits_of(model):
    with torch.no_grad():
        ids = {
            "input_ids": torch.tensor([SOURCES[0]]),
            "decoder_input_ids": torch.tensor([[0, 5, 6]]),
        }
        return model(**ids).logits


def test_the_settings_come_back_from_config_json_and_transformers_talks_no_more_and_no_less(
    saved, capfd
):
    from transformers.utils import logging

    level = logging.get_verbosity()
    checkpoint = load_checkpoint(str(saved))
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (level, True)
    assert tuple(capfd.readouterr()) == ("", "")
    assert (
        json.loads((saved / "config.json").read_text(encoding="utf-8"))["pipedec"][
            "delay"
        ]
        == 2
    )
    assert checkpoint.settings == SETTINGS
    assert checkpoint.name == str(saved)
    assert not checkpoint.model.training
    codec = checkpoint.codec()
    assert (codec.prefix, codec.max_source_tokens, codec.eos) == ("summarize: ", 300, 1)
    checkpoint.settings = None
    assert (checkpoint.codec().prefix, checkpoint.codec().max_source_tokens) == (
        "",
        2048,
    )


def words_tokenizer(count):
    """One whose ids are below `count`: the special tokens, ``w3``, ``w4`` and so on."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<pad>", "</s>", "<unk>", *(f"w{number}" for number in range(3, count))]
    words = {name: number for number, name in enumerate(names)}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_comes_back_with_the_same_logits(tmp_path, kind):
    """Also where the output matrix is its own and is not scaled, as in v1.1 and Flan-T5; saved again, too."""
    model, tokenizer = small_model(kind), words_tokenizer(VOCABULARY)
    for name in ("once", "again"):
        save_checkpoint(
            Checkpoint(copy.deepcopy(model), tokenizer, SETTINGS, name), tmp_path / name
        )
        loaded = load_checkpoint(str(tmp_path / name)).model
        assert type(loaded) is type(model)
        assert logits_of(loaded).equal(logits_of(small_model(kind)))
        model = loaded
    if kind == "gated":  # as published configs of v1.1 do
        path = tmp_path / "once" / "config.json"
        change(path, "scale_decoder_outputs", "pipedec", tie_word_embeddings=False)
        checkpoint = load_checkpoint(str(tmp_path / "once"))
        assert checkpoint.settings is checkpoint.segmenter is None
        assert logits_of(checkpoint.model).equal(logits_of(model))


def test_a_segmenter_is_kept_with_the_checkpoint(tmp_path):
    text = "Mr. Smith eats. He likes it."
    segmenter = make_segmenter("sentence", targets=[text] * 5)
    settings = msgspec.structs.replace(
        SETTINGS, segmentation=Segmentation("sentence", (), " ")
    )
    save_checkpoint(
        replace(fresh_toy(), settings=settings, segmenter=segmenter), tmp_path
    )
    kept = load_checkpoint(str(tmp_path)).segmenter
    assert kept is not None
    assert kept.spans(text) == segmenter.spans(text)


def test_saving_fails_whole_or_not_at_all(saved, monkeypatch):
    """A disk that is full in the midst of it leaves what was there as it was, and nothing beside it."""
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    checkpoint = load_checkpoint(str(saved))
    with torch.no_grad():
        checkpoint.model.shared.weight.add_(1)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.tokenizer, "save_pretrained", full)
        with pytest.raises(OSError, match="No space left"):
            save_checkpoint(checkpoint, saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    save_checkpoint(checkpoint, saved)  # over the one that it was loaded from
    assert load_checkpoint(str(saved)).model.shared.weight.equal(
        checkpoint.model.shared.weight
    )


def test_bos_and_eos_are_the_models():
    checkpoint = fresh_toy()
    assert (checkpoint.bos, checkpoint.eos) == (0, 1)
    checkpoint.model.config.decoder_start_token_id = (
        None  # T5's own configs may leave it to the pad token
    )
    checkpoint.model.config.pad_token_id = 5
    checkpoint.model.config.eos_token_id = [7, 8]
    assert (checkpoint.bos, checkpoint.eos) == (5, 7)
    checkpoint.model.config.bos_token_id = (
        6  # before padding, as in transformers and in a saved config
    )
    assert checkpoint.bos == 6


@pytest.mark.parametrize(
    "name",
    ["nowhere", "./no/where", "/no/where", "~/no", "a/b/c", "", "pyproject.toml"],
)
def test_a_folder_that_is_not_there_is_said_not_to_be(name):
    refused(name)


@pytest.mark.parametrize("family", ["whisper", "vit", "led"])
def test_a_model_that_is_no_decoder_of_texts_is_refused_by_name(tmp_path, family):
    from transformers import AutoConfig

    AutoConfig.for_model(family).save_pretrained(tmp_path)
    refused(tmp_path)


_SMALL = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "pad_token_id": 0,
}
_SMALL |= {"bos_token_id": 2, "eos_token_id": 1, "intermediate_size": 48, "head_dim": 8}
_STATE = "its layers take no positions. They have biases or a state instead; take a model of another family"


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("gpt2", {}),
        ("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
        ("bloom", {}),
        ("mamba", {}),
        ("bert", {"is_decoder": False}),
        ("qwen3_next", {"num_experts": 2, "num_experts_per_tok": 1}),
    ],
)
def test_a_model_that_cannot_decode_a_grid_says_which_rule_it_breaks(
    tmp_path, family, more
):
    from transformers import AutoConfig, AutoModelForCausalLM

    names = (
        {"n_embd": 32, "n_layer": 2, "n_head": 4} if family in ("gpt2", "bloom") else {}
    )
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(family, **_SMALL | more | names)
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    model.save_pretrained(tmp_path)
    words_tokenizer(40).save_pretrained(tmp_path)
    refused(tmp_path)


def test_positions_are_turned_as_older_config_files_say(tmp_path):
    """They name the part of a head that is turned beside rope_scaling, not within rope_parameters."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        "phi3", **_SMALL | {"partial_rotary_factor": 0.5, "num_key_value_heads": 2}
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    words_tokenizer(40).save_pretrained(tmp_path)
    change(
        tmp_path / "config.json",
        "rope_parameters",
        rope_theta=500.0,
        partial_rotary_factor=0.5,
    )
    rotary = load_checkpoint(str(tmp_path)).model.model.rotary_emb
    assert rotary.inv_freq.tolist() == pytest.approx([1.0, 500.0**-0.5])


def without(pattern):
    return lambda folder: [path.unlink() for path in folder.glob(pattern)]


def holds(name, content):
    """A file holds something else, or its first bytes only."""

    def spoil(folder):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(
            before[:content] if isinstance(content, int) else content
        )

    return spoil


def without_a_part(folder):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights.pop("decoder.block.1.layer.0.SelfAttention.q.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def with_a_prefix_that_makes_tokenizers_panic(folder):
    """A panic in Rust is an exception that is no `Exception`."""
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    change(
        folder / "tokenizer.json",
        model={**model, "continuing_subword_prefix": "x" * 3_000},
    )


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (with_a_prefix_that_makes_tokenizers_panic, "out of range"),
        *((holds("config.json", content), "") for content in (b"", b"{}", b"null")),
        *(
            (holds("model.safetensors", content), "")
            for content in (0, 20_000, b"\xff" * 1000)
        ),
        *((holds("tokenizer.json", content), "") for content in (b"", b"{}")),
        (without("*"), ""),
        (without("config.json"), "not a model; it holds no config.json"),
        (without("model.safetensors"), ""),
        (
            without_a_part,
            "decoder.block.1.layer.0.SelfAttention.q.weight",
        ),  # rather than made up
        (lambda folder: change(folder / "config.json", d_ff=64), ""),
    ],
)
def test_a_folder_that_is_spoilt_or_not_whole_is_refused(saved, spoil, what):
    spoil(saved)
    line = refused(saved, words=False)
    assert line.startswith(f"cannot load the checkpoint {saved}: ")
    assert what in line


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (None, ({"decoder": "pipelined"}, "\ud800", [1], {}, 0, "", False)),
        (
            "segmentation",
            (
                {"level": "phrase"},
                "phrase",
                {**IN_CONFIG["segmentation"], "sub_max": 0},
            ),
        ),
        ("delay", (0, "often", 10**9, True, [2])),
        ("decoder", ("parallel", "\ud800")),
        ("colour", ("red",)),
        ("time_max", (0, 10**9, "50", 1.5)),
    ],
)
def test_settings_of_another_version_or_outside_their_bounds_are_refused(
    saved, field, values
):
    for value in values:
        settings = {**IN_CONFIG, field: value} if field else value
        change(saved / "config.json", pipedec=settings)
        line = refused(saved)
        assert line.startswith(
            f"{saved}/config.json: the settings under 'pipedec' are not of this version"
        )


@pytest.fixture
def calls(monkeypatch):
    """Attempts to reach the network, each of which fails; the hub's own offline switch is off."""
    made = []

    def fail(*args, **kwargs):
        made.append(repr(args))
        raise OSError("the network is not to be used")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(
        time, "sleep", lambda seconds: None
    )  # the hub's client tries again, and waits
    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, fail)
    monkeypatch.setattr(socket.socket, "connect", fail)
    return made


@pytest.mark.parametrize(
    "missing",
    [
        None,
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
        "config.json",
    ],
)
def test_a_local_folder_whole_or_broken_never_calls_the_hub(saved, calls, missing):
    if missing is None:
        save_checkpoint(load_checkpoint(str(saved)), saved)
    else:
        (saved / missing).unlink()
        refused(saved, words=False)
    assert calls == []


@pytest.mark.parametrize("online", [False, True])  # the tests run with HF_HUB_OFFLINE
def test_a_hub_name_that_cannot_be_had_is_one_line(online, request):
    calls = request.getfixturevalue("calls") if online else []
    assert refused("google-t5/t5-none", words=False).startswith(
        "cannot load the checkpoint google-t5/t5-none: "
    )
    assert bool(calls) == online
