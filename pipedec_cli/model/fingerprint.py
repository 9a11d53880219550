"""Which weights a result was made with: a hash that is the same wherever the checkpoint lies."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from pipedec_cli.data.manifest import file_sha256
from pipedec_cli.model.checkpoint import Checkpoint

#: Files that have no say in what is generated: logs and manifests of the training, and the decoding defaults of others.
_SILENT: Final = frozenset({"generation_config.json", "trainer_state.json", "training.json"})
_TELLING: Final = frozenset({".bin", ".json", ".model", ".safetensors", ".txt"})


def fingerprint(checkpoint: Checkpoint) -> str | None:
    """A SHA-256 over the weights, the configuration and the tokenizer of a folder; the commit of a hub model.

    Folders within, a training's ``checkpoint-N`` among them, are left out.
    """
    folder = Path(checkpoint.name)
    if not folder.is_dir():
        commit = getattr(checkpoint.model.config, "_commit_hash", None)
        return None if commit is None else str(commit)
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.suffix in _TELLING and file.name not in _SILENT:
            digest.update(f"{file.name} {file_sha256(file)}\n".encode())
    return digest.hexdigest()
