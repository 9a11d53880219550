"""Folders that an older transformers wrote: mapped as well, and computed as its whole models are."""

import json
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from pipedec_cli.decoding.decoder import load
from pipedec_cli.model.bare import BareModel
from pipedec_cli.model.engine.native.library import BuildError
from pipedec_cli.model.engine.native.ropes import frequencies_of
from tests.checkpoints import change
from tests.model.engines import needs_kernels
from tests.model.test_files import DECODE, TEXTS, saved

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def aged(folder, **changes):
    """The folder as an older transformers would have written it."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["transformers_version"] = "4.41.0"
    rope = config.pop("rope_parameters", {}) | changes
    config["rope_theta"] = rope.pop("rope_theta", 10_000.0)
    if rope.get("rope_type", "default") != "default":
        config["rope_scaling"] = rope
    path.write_text(json.dumps(config), encoding="utf-8")
    return folder


@needs_kernels
@pytest.mark.parametrize(
    ("kind", "rope"),
    [
        ("llama, no panel", {}),
        ("llama, no panel", LLAMA3),
        ("llama, no panel", {"rope_type": "linear", "factor": 4.0}),
        ("t5", {}),
        ("gated", {}),
    ],
)
def test_a_folder_of_an_older_transformers_is_mapped_and_writes_the_same(
    tmp_path, kind, rope
):
    folder = aged(saved(tmp_path, kind), **rope)
    mapped = load(folder, device="cpu")
    whole = load(folder, device="cpu", consume=False)
    assert isinstance(mapped.checkpoint.model, BareModel)
    assert not isinstance(whole.checkpoint.model, BareModel)
    made = [
        [(text.text, text.grid) for text in decoder.texts(TEXTS)]
        for decoder in (mapped, whole)
    ]
    assert made[0] == made[1]


@needs_kernels
def test_what_transformers_says_of_a_folder_is_kept(tmp_path):
    folder = aged(saved(tmp_path / "model", "llama, no panel"))
    first = load(folder, device="cpu").texts(["w3 w9"])
    command = [sys.executable, "-c", DECODE, str(folder)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    tokens, imported = json.loads(ran.stdout)
    assert (tokens[0], imported) == ([text.tokens for text in first], [])


@needs_kernels
def test_what_transformers_says_of_a_folder_that_changed_is_asked_again(tmp_path):
    folder = aged(saved(tmp_path / "model", "llama, no panel"))
    ends = [load(folder, device="cpu").checkpoint.ends]
    change(folder / "generation_config.json", eos_token_id=[1, 5])
    ends.append(load(folder, device="cpu").checkpoint.ends)
    assert ends == [(2,), (2, 1, 5)]


@pytest.mark.parametrize("kind", ["linear", "llama3"])
def test_frequencies_are_those_of_transformers(tmp_path, kind):
    config = AutoModelForCausalLM.from_pretrained(
        saved(tmp_path, "llama, no panel")
    ).config
    config.rope_parameters = LLAMA3 | {"rope_type": kind}
    expected, _ = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    found = frequencies_of(config.rope_parameters, 2 * len(expected))
    assert torch.allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "rope", [{"rope_type": "longrope"}, {"partial_rotary_factor": 0.5}]
)
def test_other_embeddings_are_left_to_transformers(rope):
    with pytest.raises(BuildError):
        frequencies_of({"rope_theta": 10_000.0} | rope, 8)
