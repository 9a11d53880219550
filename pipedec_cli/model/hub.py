"""A model of the hub as a folder on this disk, so that it is read like any other folder."""

from pathlib import Path
from typing import Final

#: What a folder is read by: settings, tokenizers, chat templates and weights. Weights of
#: other forms, which a repository may hold as well, are not fetched.
_FILES: Final = (
    "*.json",
    "*.jinja",
    "*.model",
    "*.txt",
    "model*.safetensors",
)


def snapshot(name: str) -> Path | None:
    """The folder of a model ``owner/name`` in the hub's cache, fetched if need be. Its name is the commit.

    None if the model cannot be had, or has no weights in safetensors: transformers then
    finds others, or says why there are none.
    """
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=list(_FILES)))
    except Exception:  # of the network, of the hub, or of the name
        return None
    has_weights = any(folder.glob("model*.safetensors"))
    return folder if has_weights else None
