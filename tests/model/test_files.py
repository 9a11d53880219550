"""A folder's own files: read where kernels need no more, the same texts as of transformers' model, and left to that else."""

import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from itertools import product
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from pipedec_cli.data.cache import cache_folder
from pipedec_cli.data.errors import UserError
from pipedec_cli.decoding.decoder import load
from pipedec_cli.metrics.multispan import MultiSpanQA
from pipedec_cli.model.arguments import computes_bfloat16
from pipedec_cli.model.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from pipedec_cli.model.engine.native import store
from pipedec_cli.model.files import BareModel, FileTokenizer, read_folder
from tests.checkpoints import change
from tests.model.chats import CHATML, DATED, foreign
from tests.model.engines import CAUSAL, KINDS, VOCABULARY, needs_kernels, small_model
from tests.model.test_checkpoint import SETTINGS, words_tokenizer
from tests.running import slow

pytestmark = needs_kernels
TEXTS = ["w3 w9 w27", "w31", "w8 w8 w12 w30 w5 w6"]

#: Loads a folder in two dtypes, writes a text with each, and says what was imported on
#: the way.
DECODE = """
import json, sys
from pipedec_cli.decoding.decoder import load
decoders = [load(sys.argv[1], dtype=dtype, device="cpu") for dtype in ("float32", "int8")]
tokens = [[made.tokens for made in decoder.texts(["w3 w9"])] for decoder in decoders]
heavy = [name for name in ("transformers", "nltk", "sympy", "scipy", "accelerate") if name in sys.modules]
print(json.dumps([tokens, heavy]))
"""


def saved(folder, kind="t5"):
    settings = msgspec.structs.replace(SETTINGS, delay="any", source_prefix="")
    model = small_model(kind)
    tokenizer = words_tokenizer(model.config.vocab_size)
    if (
        model.config.model_type == "qwen2"
    ):  # of any other, transformers makes one of this kind
        tokenizer = _letters_tokenizer()
    save_checkpoint(Checkpoint(model, tokenizer, settings, "x"), folder)
    return folder


def _letters_tokenizer():
    from transformers import Qwen2Tokenizer

    letters = {
        letter: number
        for number, letter in enumerate(["<|endoftext|>", *"w0123456789Ġ"], start=3)
    }
    return Qwen2Tokenizer(vocab=letters, merges=[])


def is_bare(folder):
    return isinstance(load(folder, device="cpu").checkpoint.model, BareModel)


def reads_tokenizer(folder):
    return isinstance(load(folder, device="cpu").text.tokenizer, FileTokenizer)


def save_with(folder, weights):
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *product([*KINDS, *CAUSAL], ["float32"]),
        *product(
            ["t5", "llama, no panel", "gemma3_text, windows"], ["bfloat16", "int8"]
        ),
    ],
)
def test_weights_alone_write_what_the_whole_model_writes(kind, dtype, tmp_path):
    folder = saved(tmp_path, kind)
    decoders = [
        load(folder, dtype=dtype, device="cpu", consume=consume)
        for consume in (True, False)
    ]
    config = (folder / "config.json").read_text(encoding="utf-8")
    # Those that their parameters do not determine are transformers'.
    is_read = '"yarn"' not in config and '"longrope"' not in config
    assert [isinstance(each.checkpoint.model, BareModel) for each in decoders] == [
        is_read,
        False,
    ]
    made = [
        [(one.text, one.grid) for one in decoder.texts(TEXTS, batch_size=2)]
        for decoder in decoders
    ]
    assert made[0] == made[1]


@pytest.mark.parametrize("kind", ["t5", slow("llama, no panel")])
def test_a_start_imports_nothing_of_transformers(kind, tmp_path):
    command = [sys.executable, "-c", DECODE, str(saved(tmp_path, kind))]
    ran = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    here = [
        load(tmp_path, dtype=dtype, device="cpu").texts(["w3 w9"])
        for dtype in ("float32", "int8")
    ]
    assert ran == [[[made.tokens for made in texts] for texts in here], []]


def test_a_weight_that_the_first_t5s_hold_and_nothing_reads_is_passed_over(tmp_path):
    weights = load_file(saved(tmp_path) / "model.safetensors")
    unread = {
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.ones(
            8, 4
        )
    }
    save_with(tmp_path, weights | unread)
    model = load(tmp_path, device="cpu").checkpoint.model
    assert isinstance(model, BareModel) and not unread.keys() & {
        name for name, _ in model.named_parameters()
    }


LAYER = "model.layers.1.self_attn."


@pytest.mark.parametrize(
    ("kind", "hurt"),
    [
        ("t5", {"decoder.block.1.layer.2.layer_norm.weight": None}),
        ("t5", {"decoder.block.2.layer.0.layer_norm.weight": torch.ones(32)}),
        ("t5", {"decoder.final_layer_norm.weight": torch.ones(31)}),
        ("t5", {"shared.weight": torch.ones(VOCABULARY, 32, dtype=torch.int64)}),
        ("t5", {"shared.weight": torch.ones(VOCABULARY, 31)}),
        (
            "t5",
            {
                "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": torch.ones(
                    9, 4
                )
            },
        ),
        ("gated", {"decoder.block.0.layer.2.DenseReluDense.wi_0.weight": None}),
        ("qwen3, tied", {f"{LAYER}q_norm.weight": None}),
        ("qwen3, tied", {f"{LAYER}q_proj.weight": torch.ones(3)}),
        ("llama, no panel", {f"{LAYER}q_proj.bias": torch.ones(40)}),
        ("llama, no panel", {f"{LAYER}k_proj.bias": torch.ones(7)}),
    ],
)
def test_other_weights_than_the_config_counts_are_left_to_transformers_and_its_words(
    kind, hurt, tmp_path
):
    weights = load_file(saved(tmp_path, kind) / "model.safetensors") | hurt
    save_with(
        tmp_path,
        {name: weight for name, weight in weights.items() if weight is not None},
    )
    assert read_folder(tmp_path, torch.float32, torch.float32) is None
    said = []
    for read in (load_checkpoint, lambda name: load(name, device="cpu")):
        try:
            read(str(tmp_path))
        except UserError as error:
            said.append(str(error))
    assert len({*said}) <= 1 and len(said) in (
        0,
        2,
    )  # transformers converts some and passes over others


@pytest.mark.parametrize(
    "name", ["model.safetensors", "tokenizer.json", "tokenizer_config.json"]
)
def test_a_damaged_file_is_left_to_transformers(name, tmp_path):
    (saved(tmp_path) / name).write_bytes(b"nothing of the kind")
    assert read_folder(tmp_path, torch.float32, torch.float32) is None


def test_the_tokenizer_of_a_folder_that_transformers_5_has_not_written_is_left_to_transformers(
    tmp_path,
):
    assert reads_tokenizer(saved(tmp_path))
    change(tmp_path / "tokenizer_config.json", eos_token="w5")
    assert (
        load(tmp_path, device="cpu").text.tokenizer.special_tokens_map["eos_token"]
        == "w5"
    )
    for name, values in [
        ("tokenizer_config.json", {"image_token": "w6"}),
        ("tokenizer_config.json", {"backend": None}),
        ("config.json", {"transformers_version": "4.57.0"}),
    ]:
        before = (tmp_path / name).read_bytes()
        assert reads_tokenizer(tmp_path)
        change(tmp_path / name, **values)
        assert read_folder(tmp_path, torch.float32, torch.float32) is None
        assert is_bare(tmp_path)
        (tmp_path / name).write_bytes(before)


def test_without_kernels_or_for_what_they_cannot_compute_it_is_the_whole_model(
    monkeypatch, tmp_path
):
    assert is_bare(saved(tmp_path))
    monkeypatch.setenv("PIPEDEC_NATIVE", "0")
    assert not is_bare(tmp_path)
    monkeypatch.delenv("PIPEDEC_NATIVE")
    change(tmp_path / "config.json", feed_forward_proj="silu", dense_act_fn="silu")
    assert not is_bare(tmp_path)
    assert list(load(tmp_path, device="cpu").texts(TEXTS))


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float32])
def test_without_kernels_torch_computes_in_the_dtype_of_the_files(
    monkeypatch, tmp_path, stored
):
    saved(tmp_path, "llama, no panel")
    weights = load_file(tmp_path / "model.safetensors")
    save_with(tmp_path, {name: weight.to(stored) for name, weight in weights.items()})
    assert load(tmp_path, device="cpu").dtype == "float32"
    monkeypatch.setenv("PIPEDEC_NATIVE", "0")
    decoder = load(tmp_path, device="cpu")
    if computes_bfloat16():
        assert decoder.checkpoint.model.dtype == stored
        assert decoder.dtype == str(stored).removeprefix("torch.")
    assert list(decoder.texts(TEXTS))


def test_a_source_tree_that_is_not_installed_loads_and_scores_as_well(
    monkeypatch, tmp_path
):
    def distribution(name, original=metadata.distribution):
        if name == "pipedec":
            raise metadata.PackageNotFoundError(name)
        return original(name)

    monkeypatch.setattr(metadata, "distribution", distribution)
    assert is_bare(saved(tmp_path))
    assert MultiSpanQA().signature.endswith("|pipedec:source")


@pytest.mark.parametrize(
    "template", [CHATML, DATED, CHATML + "{{ messages | tojson }}", None]
)
def test_the_tokenizer_and_its_chats_are_those_of_transformers(template, tmp_path):
    foreign(tmp_path, template=template)
    mine, theirs = (
        load(tmp_path, device="cpu"),
        load(tmp_path, device="cpu", consume=False),
    )
    assert [
        isinstance(each.text.tokenizer, FileTokenizer) for each in (mine, theirs)
    ] == [True, False]
    asked = ["The Mill <|im_end|> is cheap </s>", "", "Grüße \U0001f600  a\n b"]
    if template and "tojson" not in template:
        for decoder in (mine, theirs):
            decoder.read_sources("Say {source}!", chat=True)
    elif template:
        whole = {"tokenize": False, "add_generation_prompt": True}
        chats = [
            each.text.tokenizer.apply_chat_template(
                [{"role": "user", "content": "a"}], **whole
            )
            for each in (mine, theirs)
        ]
        assert chats[0] == chats[1]
    assert (
        mine.text.prompt == theirs.text.prompt
        and mine.checkpoint.eos == theirs.checkpoint.eos
    )
    ids = [mine.text.source(text)[0] for text in asked]
    assert ids == [theirs.text.source(text)[0] for text in asked]
    assert [mine.text.decode(each) for each in ids] == [
        theirs.text.decode(each) for each in ids
    ]
    tokenizers = mine.text.tokenizer, theirs.text.tokenizer
    for name in (
        "unk_token_id",
        "bos_token_id",
        "eos_token_id",
        "special_tokens_map",
        "chat_template",
    ):
        assert getattr(tokenizers[0], name) == getattr(tokenizers[1], name)
    assert {*tokenizers[0].all_special_ids} == {*tokenizers[1].all_special_ids}
    assert tokenizers[0].get_vocab() == tokenizers[1].get_vocab()


WORDS = {
    word: number
    for number, word in enumerate(
        ["<pad>", "</s>", "<unk>", "a", "b", "ab", "Ġ", "Ġa", "▁", "▁a"]
    )
}
PIECES = [
    *((word, 0.0) for word in ("<pad>", "</s>", "<unk>")),
    ("▁", -2.0),
    ("▁a", -3.0),
    ("b", -3.5),
]


@pytest.mark.parametrize(
    ("kind", "name", "parts"),
    [
        ("t5", "T5Tokenizer", {"vocab": PIECES}),
        ("qwen2", "Qwen2Tokenizer", {"vocab": WORDS, "merges": [("a", "b")]}),
        (
            "llama",
            "LlamaTokenizer",
            {"vocab": WORDS, "merges": [("a", "b")], "add_bos_token": True},
        ),
        ("gemma3_text", "GemmaTokenizer", {"vocab": WORDS, "merges": [("a", "b")]}),
        ("llama", "GPT2Tokenizer", {"vocab": WORDS, "merges": [("a", "b")]}),
    ],
)
def test_what_transformers_has_written_of_any_tokenizer_is_what_it_reads(
    kind, name, parts, tmp_path
):
    """Some of its classes read the vocabulary of a tokenizer.json alone, and add all else."""
    import transformers

    getattr(transformers, name)(**parts).save_pretrained(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(
        tmp_path, config=transformers.AutoConfig.for_model(kind)
    )
    mine = FileTokenizer(tmp_path, kind)
    backends = [json.loads(each.backend_tokenizer.to_str()) for each in (mine, theirs)]
    assert backends[0] == backends[1]
    assert {*mine.all_special_ids} == {*theirs.all_special_ids}


def mapped_packed():
    """How many kB of each packed file this process has written to, and so has for itself."""
    own = {}
    name = None
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            name = line.split(maxsplit=5)[-1] if "/packed/" in line else None
        elif name and line.startswith("Private_Dirty:"):
            own[name] = own.get(name, 0) + int(line.split()[1])
    return own


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="no /proc")
@pytest.mark.parametrize("kind", ["gated", "qwen3, tied"])
def test_two_checkpoints_of_one_file_map_the_same_packed_weights_and_write_nothing_there(
    kind, monkeypatch, tmp_path
):
    monkeypatch.setattr(store, "FEWEST_BYTES", 1)
    shutil.copytree(cache_folder(), tmp_path / "cache" / "pipedec")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folders = [saved(tmp_path / "one", kind), tmp_path / "other"]
    shutil.copytree(*folders)
    first = load(folders[0], dtype="int8", device="cpu")
    expected = [text.text for text in first.texts(TEXTS)]
    store.settle()
    del first
    decoders = [load(folder, dtype="int8", device="cpu") for folder in folders]
    for decoder in decoders:
        assert [text.text for text in decoder.texts(TEXTS)] == expected
    own = mapped_packed()
    files = {str(path) for path in (cache_folder() / "packed").glob("*.bin")}
    assert own.keys() == files and set(own.values()) == {0}
