"""Folders that another version of transformers wrote: their config and tokenizer by transformers, their weights as they stand.

What transformers says of them is kept in the cache, so that it need not be imported at
later starts: that takes a second or more.
"""

from contextlib import suppress
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch

from pipedec_cli.data.writing import file_sha256
from pipedec_cli.model.bare import read_bare
from pipedec_cli.model.files import check_whole, is_compiled, read_folder
from pipedec_cli.model.kept import kept_folder
from pipedec_cli.model.pretrained import (
    KEY,
    check_tokenizer,
    load_config,
    load_tokenizer,
    quiet,
)

#: Files of so many bytes have nothing but weights.
_LARGE: Final = 1 << 26


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
    with suppress(Exception):  # whatever does not fit: transformers says it below
        kept = kept_folder(_name_of(folder), partial(_keep, folder, computed))
        read = read_folder(kept, dtype, computed, weights=folder)
        if read:
            return read
    try:
        with quiet():
            config, tokenizer, content = _told(folder, computed)
            model = read_bare(folder, config, dtype)
            check_whole(model, tokenizer, folder, computed)
    except Exception:  # whatever does not fit: transformers says it in its words
        return None
    return model, tokenizer, content


def _name_of(folder: Path) -> str:
    """The name in the cache for what transformers says of a folder: of its version, and of all files but the large ones."""
    facts = [version("transformers")]
    for file in sorted([*folder.iterdir(), *folder.glob("additional_*/*")]):
        if file.is_file() and file.stat().st_size < _LARGE:
            facts += [file.name, file_sha256(file)]
    return f"{sha256(' '.join(facts).encode()).hexdigest()}-told"


def _told(folder: Path, computed: torch.dtype) -> tuple[Any, Any, Any]:
    """A folder's config, its tokenizer, and our settings; any error if they are not for the kernels."""
    config, content = load_config(str(folder), local=True)
    if not is_compiled(config, computed):
        raise ValueError("there are no kernels for it")
    return config, load_tokenizer(str(folder), config, local=True), content


def _keep(folder: Path, computed: torch.dtype, kept: Path) -> None:
    """Write a folder's config and tokenizer to the cache as transformers reads them; any error if they are not sound."""
    config, tokenizer, content = _told(folder, computed)
    # What is written may lack a token whose id another one has.
    check_tokenizer(tokenizer, config.vocab_size, str(folder))
    setattr(config, KEY, content)
    config.save_pretrained(kept)
    tokenizer.save_pretrained(kept)
