"""Weights that are codes of numbers, and folders without a tokenizer: refused by their names, in one line."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipedec_cli.data.errors import UserError
from pipedec_cli.decoding.decoder import load
from pipedec_cli.model.checkpoint import load_checkpoint
from tests.checkpoints import change
from tests.model.chats import foreign


@pytest.fixture
def folder(tmp_path):
    """A model from elsewhere."""
    return foreign(tmp_path / "model")


def refused(folder):
    """The error, which is the same whether transformers is needed to read the folder or not."""
    errors = []
    for consume in (True, False):
        with pytest.raises(UserError) as error:
            load(folder, device="cpu", consume=consume)
        errors.append(error.value)
    assert str(errors[0]) == str(errors[1])
    assert "\n" not in str(errors[0])
    return errors[0]


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({"quant_method": "awq", "bits": 4}, "AWQ"),
        ({"quant_method": "gptq", "bits": 4}, "GPTQ"),
        ({"quant_method": "compressed-tensors"}, "compressed-tensors"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"load_in_8bit": True}, "bitsandbytes"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
    ],
)
def test_a_model_whose_config_says_how_it_is_quantised_is_refused_by_that_name(
    told, name, folder
):
    change(folder / "config.json", quantization_config=told)
    error = refused(folder)
    assert error.where == f"{folder}/config.json"
    assert name in error.what and error.todo


def test_the_older_name_of_compressed_tensors_is_known(folder):
    change(folder / "config.json", compression_config={"format": "pack-quantized"})
    assert "compressed-tensors" in refused(folder).what


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.float8_e4m3fn, "fp8"),
        (torch.float8_e5m2, "fp8"),
        (torch.int8, "int8"),
        (torch.uint8, "whole numbers"),
    ],
)
@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_weights_that_are_stored_as_codes_are_refused_where_no_config_tells(
    form, dtype, name, folder
):
    path = folder / "model.safetensors"
    weights = load_file(path)
    matrix = "model.layers.1.mlp.down_proj.weight"
    weights[matrix] = weights[matrix].to(dtype)
    if form == "bin":
        path.unlink()
        path = folder / "pytorch_model.bin"
        torch.save(weights, path)
    else:
        save_file(weights, path, {"format": "pt"})
    error = refused(folder)
    assert error.where == f"{path}: {matrix}"
    assert name in error.what


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_weights_in_other_types_of_numbers_are_read(dtype, folder):
    path = folder / "model.safetensors"
    weights = {name: weight.to(dtype) for name, weight in load_file(path).items()}
    weights["model.mask"] = torch.ones(3, dtype=torch.bool)  # which is no weight
    save_file(weights, path, {"format": "pt"})
    assert load_checkpoint(str(folder)).model.dtype == torch.float32


@pytest.mark.parametrize("left", [(), ("tokenizer_config.json",)])
def test_a_folder_without_a_tokenizer_is_said_to_have_none(left, folder):
    for path in folder.glob("tokenizer*"):
        if path.name not in left:
            path.unlink()
    error = refused(folder)
    assert error.where == str(folder)
    assert "tokenizer.json" in error.what and "copy" in error.todo


def test_a_damaged_tokenizer_is_not_said_to_be_missing(folder):
    content = json.loads((folder / "tokenizer.json").read_bytes())
    del content["model"]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    assert "holds no" not in refused(folder).what
