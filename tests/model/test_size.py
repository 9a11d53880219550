"""What a model takes in memory, by the headers of its files alone."""

import json
import logging

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.model import size
from pipedec_cli.model.families import backbone_of
from tests.model.engines import needs_int8, small_model
from tests.running import run

GIB = 1 << 30


def header_of(model):
    """The names and shapes of a model's weights, as in its file."""
    return {name: tuple(weight.shape) for name, weight in model.named_parameters()}


def sparse(folder, shapes):
    """A folder with a file of bfloat16 weights of these shapes, none of which is written: the file takes no disk."""
    entries = {}
    end = 0
    for name, shape in shapes.items():
        begin = end
        end += 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        entries[name] = {
            "dtype": "BF16",
            "shape": list(shape),
            "data_offsets": [begin, end],
        }
    header = json.dumps(entries).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + end)
    (folder / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    return folder


def large(folder, count):
    """A folder of a model with so many numbers, and keys and values of 128 a token."""
    width = 1 << 20
    shapes = {
        "model.layers.0.mlp.up_proj.weight": (count // width, width),
        "model.layers.0.self_attn.k_proj.weight": (64, 32),
        "model.layers.0.self_attn.v_proj.weight": (64, 32),
    }
    return sparse(folder, shapes)


@pytest.mark.parametrize("kind", ["t5", "gated", "llama, no panel", "qwen3, tied"])
def test_a_size_is_that_of_the_weights_and_of_the_cache(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(size, "SMALL", 1)
    model = small_model(kind)
    found = size.size_of(str(sparse(tmp_path, header_of(model))))
    assert found.weights == sum(weight.numel() for weight in model.parameters())
    is_tied = model.lm_head.weight is model.get_input_embeddings().weight
    assert found.rows == (0 if is_tied else model.get_input_embeddings().weight.numel())
    backbone = backbone_of(model.config)
    sizes = backbone.sizes(model.config)
    columns = 1 if backbone.prompted else 2  # the source has some of its own
    heads = getattr(model.config, "num_key_value_heads", sizes.heads)
    assert found.token == 2 * columns * sizes.layers * heads * sizes.head_width
    if backbone.encoder:
        shared = model.shared.weight.numel()
        own = sum(weight.numel() for weight in model.encoder.parameters())
        assert found.encoder == own - shared


def test_of_a_small_model_and_of_what_is_none_nothing_is_said(tmp_path, caplog):
    assert size.size_of(str(tmp_path)) is None
    (tmp_path / "model.safetensors").write_bytes(b"none")
    assert size.size_of(str(tmp_path)) is None
    sparse(tmp_path, {"model.embed_tokens.weight": (8, 8)})
    with caplog.at_level(logging.INFO):
        size.require_room(str(tmp_path), "float32", 1000)
    assert not caplog.messages


def test_a_large_model_says_what_it_takes(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(size, "free_memory", lambda: 64 * GIB)
    with caplog.at_level(logging.INFO):
        size.require_room(str(large(tmp_path, 3 * GIB)), "bfloat16", 10**6)
    (said,) = caplog.messages
    assert "6.4 GB in bfloat16" in said and "up to 0.3 GB" in said


@needs_int8
@pytest.mark.parametrize(
    ("gigabytes", "todo"),
    [(12, "bfloat16"), (5, "int8"), (3, "int4"), (1, "smaller model")],
)
def test_what_cannot_fit_is_refused_and_the_dtype_that_fits_is_named(
    tmp_path, monkeypatch, gigabytes, todo
):
    monkeypatch.setattr(size, "free_memory", lambda: gigabytes * GIB)
    folder = large(tmp_path, 3 * GIB)
    with pytest.raises(UserError, match=todo) as raised:
        size.require_room(str(folder), "float32", 1)
    assert str(folder) in str(raised.value)


def test_a_command_refuses_in_a_line_what_no_machine_has_the_memory_for(tmp_path):
    folder = large(tmp_path, 1 << 40)
    with pytest.raises(UserError, match="memory"):  # how much is free, changes
        run("generate", "--model", folder, "--text", "a")


def test_free_memory_is_that_of_the_control_group_if_it_has_less(tmp_path):
    machine = size.free_memory(tmp_path)
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    for name, content in [
        ("memory.max", "3000"),
        ("memory.current", "1500"),
        ("memory.stat", "anon 1000\ninactive_file 500\n"),
    ]:
        (group / name).write_text(content, encoding="ascii")
    assert size.free_memory(tmp_path) == 2000
    (group / "memory.max").write_text("max", encoding="ascii")
    assert size.free_memory(tmp_path) > machine // 2
