"""GGUF files: read as transformers reads them, kept for the next start, refused in one line."""

import errno
import struct
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from pipedec_cli.data.writing import file_sha256
from pipedec_cli.model import gguf as reading
from pipedec_cli.model.checkpoint import Checkpoint, fingerprint, load_checkpoint
from pipedec_cli.model.gguf import LONG_ROPE
from pipedec_cli.model.scratch import Shape, make_model
from tests.checkpoints import refused
from tests.model.gguf_files import TYPES, write_gguf

gguf = pytest.importorskip("gguf")
pytestmark = pytest.mark.extra("gguf")
TEXTS = (
    "The river's mouth lies 1234 m away, isn't it?",
    "Sie trinkt  zwei\n\nKaffees: 5 €.",
    "<|im_end|> x",
)
CHAT = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
SHAPE = Shape(
    d_model=64, d_ff=96, layers=1, heads=4, vocabulary=320, dropout=0.0, d_kv=16
)
QWEN_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN_SPLIT = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(Regex(QWEN_WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
)
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 32.0,
    "low_freq_factor": 1.0,
}
LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The folder in which models are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pipedec" / "models"


def made_tokenizer(splitter=None):
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = splitter or pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=special,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    backend.train_from_iterator(TEXTS * 4, trainer)
    named = dict(zip(("unk_token", "bos_token", "eos_token"), special, strict=True))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<|im_end|>", **named
    )
    tokenizer.chat_template = CHAT
    return tokenizer


def made_checkpoint(family="llama", make=None, **config):
    """Random weights, those of norms and biases included."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = (
            make() if make else make_model(replace(SHAPE, family=family), 300)
        ).eval()
        for weight in model.parameters():
            weight.data += torch.randn_like(weight) * 0.1
    for name, value in config.items():
        setattr(model.config, name, value)
    model.config.eos_token_id = 2
    splits = {"llama": None, "qwen2": QWEN_SPLIT, "qwen3": QWEN_SPLIT}
    return Checkpoint(model, made_tokenizer(splits[family]), None, "tiny")


def written(folder, checkpoint=None, dtype="float32", **options):
    path = Path(folder) / "tiny.gguf"
    write_gguf(checkpoint or made_checkpoint(), path, dtype, **options)
    return path


def ids_of(tokenizer):
    tokenizer.backend_tokenizer.encode_special_tokens = (
        False  # a text codec has changed it
    )
    return [tokenizer.backend_tokenizer.encode(text).ids for text in TEXTS]


def weights_of(model):
    return {
        name: weight.clone()
        for name, weight in model.state_dict().items()
        if name != "lm_head.weight"
    }


def assert_equal(one, other):
    assert one.keys() == other.keys()
    assert all(one[name].equal(other[name]) for name in one)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_a_file_has_the_weights_tokens_prompt_and_ends_of_its_model(tmp_path, family):
    checkpoint = made_checkpoint(family)
    again = load_checkpoint(str(written(tmp_path, checkpoint)))
    assert_equal(weights_of(again.model), weights_of(checkpoint.model))
    assert ids_of(again.tokenizer) == ids_of(checkpoint.tokenizer)
    assert again.prompt("{source}", chat=True) == checkpoint.prompt(
        "{source}", chat=True
    )
    assert (again.eos, again.opener) == (checkpoint.eos, 1)
    with torch.no_grad():
        ids = torch.tensor([checkpoint.tokenizer(TEXTS[0])["input_ids"]])
        torch.testing.assert_close(
            again.model(ids).logits, checkpoint.model(ids).logits
        )


@pytest.mark.parametrize(
    ("others", "ends"),
    [
        ({"eot": 5}, (2, 5)),
        ({"eom": 6, "eot": 5}, (2, 5, 6)),
        ({"eot": 2}, (2,)),
        ({"eos": None, "eot": 5}, (5,)),
    ],
)
def test_the_ends_of_turns_and_messages_that_a_file_names_end_a_text(
    tmp_path, others, ends
):
    keys = {f"tokenizer.ggml.{name}_token_id": end for name, end in others.items()}
    assert load_checkpoint(str(written(tmp_path, settings=keys))).ends == ends


def test_an_end_that_is_no_token_of_the_model_is_refused(tmp_path):
    path = written(tmp_path, settings={"tokenizer.ggml.eot_token_id": 320})
    refused(path)


SMALL = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
}
SMALL |= {
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "max_position_embeddings": 8192,
}
SMALL |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
GEMMA = {
    "query_pre_attn_scalar": 16,
    "sliding_window": 5,
    "final_logit_softcapping": 7.0,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75}
LONG |= {
    name: [float(place + number) for place in range(6)]
    for number, name in enumerate(LONG_ROPE, 1)
}
LINEAR = {"full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}}
LINEAR |= {"sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}


@pytest.mark.parametrize("dtype", ["float32", "Q4_0"])
@pytest.mark.parametrize(
    ("family", "settings"),
    [
        (
            "llama",
            {
                "rope_parameters": {
                    "rope_type": "yarn",
                    "rope_theta": 1e5,
                    "factor": 4.0,
                }
            },
        ),
        ("mixtral", EXPERTS),
        ("gemma2", GEMMA | {"attn_logit_softcapping": 3.0}),
        (
            "gemma2",
            GEMMA
            | {"num_hidden_layers": 46, "hidden_size": 96, "query_pre_attn_scalar": 24},
        ),
        ("gemma3_text", GEMMA | {"num_hidden_layers": 7, "rope_parameters": LINEAR}),
        ("phi3", {"sliding_window": 5}),
        ("phi3", {"rope_parameters": LONG, "tie_word_embeddings": True}),
        (
            "qwen2_moe",
            EXPERTS
            | {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 64},
        ),
        ("qwen3_moe", EXPERTS | {"moe_intermediate_size": 32, "norm_topk_prob": True}),
    ],
)
def test_a_family_has_the_logits_of_its_model(tmp_path, family, settings, dtype):
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, **SMALL | settings)
    checkpoint = made_checkpoint(make=lambda: AutoModelForCausalLM.from_config(config))
    again = load_checkpoint(str(path := written(tmp_path, checkpoint, dtype))).model
    kind = gguf.GGMLQuantizationType[TYPES.get(dtype, dtype)]
    for weight in checkpoint.model.parameters():
        if weight.squeeze().ndim > 1:
            weight.data = torch.tensor(
                gguf.dequantize(gguf.quantize(weight.detach().numpy(), kind), kind)
            )
    ours, wanted = (
        model(torch.arange(3, 40)[None]).logits for model in (again, checkpoint.model)
    )
    torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)
    tensors = {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
    if (
        gate := tensors.get("blk.0.ffn_gate_exps.weight")
    ) is not None:  # first in what transformers fuses
        fused = again.model.layers[0].mlp.experts.gate_up_proj.chunk(2, 1)[0]
        assert fused.equal(torch.tensor(gguf.dequantize(gate, kind)))


def test_a_sentencepiece_tokenizer_is_read_as_transformers_reads_it(tmp_path):
    from transformers import AutoTokenizer

    pieces = [
        "\u2581",
        *"aehint",
        "th",
        "he",
        "the",
        "\u2581the",
        "\u2581th",
        "in",
        "ein",
        "\u2581ein",
    ]
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *pieces,
    ]
    tokens += [f"[PAD{number}]" for number in range(len(tokens), 304)]
    types = [2, 3, 3] + [6] * 256 + [1] * len(pieces)
    scores = [0.0] * 259 + [-float(number) for number in range(len(pieces), 0, -1)]
    data = {
        "model": "llama",
        "tokens": tokens,
        "token_type": types + [5] * (304 - len(types)),
    }
    data |= {
        "scores": scores + [0.0] * (304 - len(scores)),
        "bos_token_id": 1,
        "unknown_token_id": 0,
    }
    named = {f"tokenizer.ggml.{name}": value for name, value in data.items()}
    path = written(tmp_path, tokenizer=named)
    ours, theirs = (
        load_checkpoint(str(path)),
        AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name),
    )
    assert ids_of(ours.tokenizer) == ids_of(theirs)
    assert ours.prompt("the ein: {source}", chat=False).first == (1,)
    assert (
        ours.codec().decode(ours.codec().ids(["the ein \u00e9"])[0]) == "the ein \u00e9"
    )


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float16", "int8", "Q4_K", "Q5_K", "Q6_K"]
)
def test_matrices_are_rounded_and_read_as_the_package_reads_them(tmp_path, dtype):
    wide = replace(SHAPE, family="qwen2", d_model=256, d_ff=384, d_kv=64)
    path = written(
        tmp_path, made_checkpoint("qwen2", lambda: make_model(wide, 300)), dtype
    )
    again = weights_of(load_checkpoint(str(path)).model)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    kind = tensors["blk.0.ffn_down.weight"]
    assert kind.tensor_type == gguf.GGMLQuantizationType[TYPES.get(dtype, dtype)]
    assert tensors["blk.0.attn_q.bias"].tensor_type == gguf.GGMLQuantizationType.F32
    theirs = torch.tensor(gguf.dequantize(kind.data, kind.tensor_type))
    assert again["model.layers.0.mlp.down_proj.weight"].equal(theirs)


def test_the_frequencies_of_a_llama_3_come_from_the_file(tmp_path):
    checkpoint = made_checkpoint(rope_parameters=LLAMA3)
    assert (
        load_checkpoint(str(written(tmp_path, checkpoint))).model.config.rope_parameters
        == LLAMA3
    )


def test_a_file_is_read_once_and_again_only_if_what_was_kept_has_changed(
    tmp_path, cache, monkeypatch, capfd
):
    path, reads, read = written(tmp_path), [], reading._read

    def counted(*given, **more):
        reads.append(1)
        read(*given, **more)

    monkeypatch.setattr(reading, "_read", counted)
    first = weights_of(load_checkpoint(str(path)).model)
    assert capfd.readouterr().err == ""
    moved = path.rename(tmp_path / "other name.GGUF")
    checkpoint = load_checkpoint(str(moved))
    assert len(reads) == 1
    assert fingerprint(checkpoint) == file_sha256(moved)
    (kept,) = cache.iterdir()
    weights = kept / "model.safetensors"
    for damage in (
        lambda: weights.write_bytes(weights.read_bytes()[:-1]),
        weights.unlink,
    ):
        damage()
        assert_equal(weights_of(load_checkpoint(str(moved)).model), first)
    assert len(reads) == 3
    assert [path.name for path in cache.iterdir()] == [kept.name]


def test_of_two_processes_that_read_a_file_at_once_the_second_leaves_what_the_first_has_kept(
    tmp_path, cache, monkeypatch
):
    read, kept = reading._read, []

    def read_while_another_does(files, folder, **more):
        monkeypatch.setattr(reading, "_read", read)
        kept.append(
            (Path(reading.loadable(str(*files))) / "tokenizer.json").stat().st_ino
        )
        read(files, folder, **more)

    monkeypatch.setattr(reading, "_read", read_while_another_does)
    folder = Path(reading.loadable(str(written(tmp_path))))
    assert [(folder / "tokenizer.json").stat().st_ino] == kept
    assert [*cache.iterdir()] == [folder]


@pytest.mark.parametrize(
    "full",
    [
        SafetensorError(
            "Error while serializing: I/O error: No space left on device (os error 28)"
        ),
        Exception("No space left on device (os error 28)"),  # of tokenizers
        OSError(errno.ENOSPC, "No space left on device"),
    ],
    ids=["weights", "tokenizer", "config"],
)
def test_a_full_cache_is_named_and_nothing_half_written_stays(
    tmp_path, cache, monkeypatch, full
):
    def write(weights, path, *_):
        path.write_bytes(b"half")
        raise full

    monkeypatch.setattr(reading, "save_file", write)
    path = written(tmp_path)
    with pytest.raises(OSError, match="no room for the weights") as error:
        load_checkpoint(str(path))
    assert (error.value.errno, error.value.filename) == (
        errno.ENOSPC,
        str(cache.parent),
    )
    assert not [*cache.iterdir()]


@pytest.mark.parametrize("parts", [2, 3])
def test_parts_of_a_file_are_the_whole_file(tmp_path, parts):
    checkpoint = made_checkpoint("qwen3")
    written(tmp_path, checkpoint, split_max_tensors=24 // parts)
    files = [
        tmp_path / f"tiny-0000{number}-of-0000{parts}.gguf"
        for number in range(1, parts + 1)
    ]
    first, last = load_checkpoint(str(files[0])), load_checkpoint(str(files[-1]))
    assert_equal(weights_of(last.model), weights_of(checkpoint.model))
    assert fingerprint(first) == fingerprint(last)
    files[1].rename(tmp_path / "whole.gguf")
    refused(files[0])
    refused(tmp_path / "whole.gguf")
    files[1].write_bytes(files[0].read_bytes())
    refused(files[0])


LOST = [
    ("attention.sliding_window", 4096),
    ("attention.head_count_kv", [2, 2]),
    ("rope.dimension_count", 8),
]
LOST += [("attention.layer_norm_rms_epsilon", None), ("rope.scaling.attn_factor", 2.0)]


@pytest.mark.parametrize(("key", "value"), LOST)
def test_a_setting_that_would_be_lost_is_refused(tmp_path, key, value):
    refused(written(tmp_path, settings={f"llama.{key}": value}))


BLOCKS = b"llama.block_count\4\0\0\0\2\0\0"


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-40],
        lambda content: content[:3000],
        lambda content: b"",
        lambda content: b"PK\3\4" + bytes(100),
        lambda content: content.replace(bytes(7) + b"llama", bytes(7) + b"mamba"),
        lambda content: content.replace(b"ggml.tokens", b"ggml.tokans"),
        lambda content: content.replace(b"blk.0.ffn_up", b"blk.0.ffn_xy"),
        lambda content: content.replace(BLOCKS + b"\0", BLOCKS + b"\1"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path, damage):
    path = written(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    said = refused(path)
    assert said.startswith(f"{path}: ")


def header(version=3, tensors=0, keys=0, rest=b""):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest


def text(value):
    return struct.pack("<Q", len(value)) + value


@pytest.mark.parametrize(
    "content",
    [
        header(version=1),
        header(keys=2**60),
        header(tensors=2**60),
        header(keys=1, rest=struct.pack("<Q", 2**63) + b"key"),
        header(keys=1, rest=text(b"key") + struct.pack("<IIQ", 9, 8, 2**62)),
        header(keys=1, rest=text(b"key") + struct.pack("<IIQ", 9, 9, 1)),
        header(
            keys=1, rest=text(b"key") + struct.pack("<IIQ", 9, 8, 2**20) + bytes(2**20)
        ),
        header(keys=1, rest=text(b"key") + struct.pack("<I", 77)),
        header(tensors=1, rest=text(b"name") + struct.pack("<I", 2**31)),
        header(
            tensors=1, rest=text(b"name") + struct.pack("<IQQIQ", 2, 2**63, 2**63, 0, 0)
        ),
        header(tensors=1, rest=text(b"name") + struct.pack("<IQIQ", 1, 8, 10**6, 0)),
        header(keys=1, rest=text(b"general.alignment") + struct.pack("<II", 4, 0)),
    ],
)
def test_a_header_that_claims_what_cannot_be_is_refused_at_once(tmp_path, content):
    path, before = tmp_path / "hostile.gguf", time.process_time()
    path.write_bytes(content)
    refused(path)
    assert time.process_time() - before < 2


def test_a_name_that_is_no_file_is_refused_and_the_hub_is_asked_for_a_file(monkeypatch):
    import huggingface_hub

    refused("no/such/file.gguf")
    asked = []
    monkeypatch.setattr(
        huggingface_hub,
        "hf_hub_download",
        lambda *given: asked.append(given) or "gone.gguf",
    )
    refused("owner/name:deep/file.gguf")
    assert {*asked} == {("owner/name", "deep/file.gguf")}


def test_a_missing_package_is_named_with_its_command(tmp_path, monkeypatch):
    path = written(tmp_path)
    monkeypatch.setitem(sys.modules, "gguf", None)
    refused(path)
