"""Folders that another version of transformers wrote: their config and tokenizer by transformers, their weights as they stand."""

from pathlib import Path
from typing import Any

import torch

from pipedec_cli.model.bare import read_bare
from pipedec_cli.model.files import check_whole, is_compiled
from pipedec_cli.model.pretrained import load_config, load_tokenizer, quiet


def read_foreign(folder: Path, dtype: torch.dtype, computed: torch.dtype) -> Any:
    """Read a folder's weights as they stand, and its config and tokenizer by transformers.

    Returns the model, whose weights are in `dtype` where they are converted, the
    tokenizer, and our settings in config.json; None if transformers is needed for the
    weights, whose modules would take 4 bytes for each. `computed` is the dtype that the
    kernels are to compute in.
    """
    is_adapter = (folder / "adapter_config.json").exists()
    if is_adapter or not any(folder.glob("model*.safetensors")):
        return None
    try:
        with quiet():
            config, content = load_config(str(folder), local=True)
            if not is_compiled(config, computed):
                return None
            model = read_bare(folder, config, dtype)
            tokenizer = load_tokenizer(str(folder), config, local=True)
            check_whole(model, tokenizer, folder, computed)
    except Exception:  # whatever does not fit: transformers says it in its words
        return None
    return model, tokenizer, content
