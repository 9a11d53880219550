"""Keys of a config.json under older names, beside the new ones or alone: what transformers makes of them is what counts."""

import inspect
import re

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import RotaryEmbeddingConfigMixin

from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.model.engine.native.describing import FAMILIES as COMPILED
from pipedec_cli.model.families import FAMILIES, TESTED
from pipedec_cli.model.files import read_folder
from tests.checkpoints import change
from tests.model.engines import needs_kernels
from tests.model.test_files import is_bare, saved
from tests.running import read_json

_LINEAR = {"type": "linear", "factor": 4.0}
#: Changes of a config.json, by the family; a key with an ellipsis is taken out.
CHANGES = [
    ("llama", {"rope_scaling": _LINEAR}),
    ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
    ("llama", {"rope_parameters": _LINEAR | {"rope_theta": 500.0}}),
    ("llama", {"rope_parameters": None, "rope_theta": 77.0}),
    ("llama", {"rope_theta": 77.0}),
    ("qwen3", {"rope_scaling": _LINEAR}),
    ("gemma3_text", {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    (
        "gemma3_text",
        {"rope_parameters": None, "rope_theta": 99.0, "rope_local_base_freq": 77.0},
    ),
    ("gemma3_text", {"layer_types": None, "sliding_window_pattern": 2}),
    ("stablelm", {"partial_rotary_factor": 0.5}),
    ("mixtral", {"num_local_experts": 9, "num_experts": 4}),
    ("qwen3_moe", {"num_local_experts": ..., "num_experts": 4}),
    ("t5", {"d_model": 48, "hidden_size": 32}),
    ("t5", {"num_heads": 8, "num_attention_heads": 4}),
    ("bart", {"encoder_layers": 5, "num_hidden_layers": 2}),
]


@pytest.mark.parametrize(("kind", "values"), CHANGES)
def test_a_config_with_older_names_is_what_transformers_makes_of_it(
    kind, values, tmp_path
):
    gone = [key for key, value in values.items() if value is ...]
    given = {key: value for key, value in values.items() if value is not ...}
    change(saved(tmp_path, kind) / "config.json", "pipedec", *gone, **given)
    written = read_json(tmp_path / "config.json")
    theirs = transformers.AutoConfig.from_pretrained(tmp_path).to_dict()
    assert {key: theirs[key] for key in theirs.keys() & written} != written
    assert read_folder(tmp_path, torch.float32, torch.float32) is None
    config = load_checkpoint(str(tmp_path), computed=torch.float32).model.config
    # What the kernels compute has no class of transformers.
    ours = config.to_dict() if hasattr(config, "to_dict") else vars(config)
    others = {
        "dtype",
        "architectures",
        "transformers_version",
        "_name_or_path",
        "is_encoder_decoder",
    }
    common = (ours.keys() & theirs.keys()) - others
    assert {key: ours[key] for key in common} == {key: theirs[key] for key in common}


@needs_kernels
@pytest.mark.parametrize("kind", ["t5", "llama", "gemma3_text"])
def test_what_transformers_5_writes_has_no_older_name(kind, tmp_path):
    assert is_bare(saved(tmp_path, kind))


def test_no_other_name_is_read_by_transformers_of_a_tested_family():
    """It takes them from what its class has no field for."""

    def taken(made):
        return re.findall(r'kwargs\.(?:pop|get)\(\s*"(\w+)"', inspect.getsource(made))

    known = {
        "rope_theta",
        "rope_scaling",
        "rope_local_base_freq",
        "sliding_window_pattern",
    }
    known |= {
        "partial_rotary_factor",
        "rotary_pct",
        "rotary_emb_base",
        "tie_word_embeddings",
    }
    known |= {"num_labels", "initializer_range"}  # which change no text
    assert {*taken(RotaryEmbeddingConfigMixin)} <= known
    for kind in {*COMPILED, *FAMILIES, *TESTED}:
        made = type(transformers.AutoConfig.for_model(kind))
        assert {*taken(made)} <= known, kind
