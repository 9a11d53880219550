"""What is known of a model before it is loaded: whether its files are there, may be read, and are what their names say."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from pipedec_cli.data.errors import UserError

#: How a file begins that git has put in the place of a large one.
_POINTER: Final = b"version https://git-lfs.github.com/spec/"
#: The files of an adapter, in this tool's folders and in those of peft.
ADAPTER_FILES: Final = "adapter_*"
_ADAPTER: Final = "adapter_config.json"
_SETTINGS: Final = ("config.json", "generation_config.json", "tokenizer_config.json")


def require_readable(folder: Path) -> None:
    """Raise a `UserError` for a folder whose files may not be read."""
    if not os.access(folder, os.R_OK | os.X_OK):
        todo = "change its permission (`chmod u+rx`), or ask its owner"
        raise UserError(
            "there is no permission to read this folder", where=folder, todo=todo
        )


def require_whole(folder: Path) -> None:
    """Raise a `UserError` for a folder that no model can be loaded from.

    It holds an adapter alone (weights to be added to those of another model), or files
    that cannot be read.
    """
    # Of an adapter, transformers would load the model that it names.
    if any(folder.glob(ADAPTER_FILES)):
        what = f"holds an adapter{_base_of(folder)}, not a whole model"
        todo = "merge it with peft (`merge_and_unload`) and give the folder of the whole, or of the finished training"
        raise UserError(what, where=folder, todo=todo)
    for file in _needed(folder):
        require_file(file)


def require_file(file: Path) -> None:
    """Raise a `UserError` for a file that may not be read, or is a pointer of Git LFS to one that was not fetched."""
    try:
        with file.open("rb") as opened:
            begin = opened.read(len(_POINTER))
    except PermissionError:
        todo = "change its permission (`chmod u+r`), or ask its owner"
        raise UserError(
            "there is no permission to read this file", where=file, todo=todo
        ) from None
    if begin == _POINTER:
        what = "is a pointer of Git LFS, and not the file itself"
        raise UserError(what, where=file, todo="run `git lfs pull` where it lies")


def _needed(folder: Path) -> Iterator[Path]:
    """The files that transformers reads, as far as they are there."""
    yield from filter(Path.exists, (folder / name for name in _SETTINGS))
    # A folder may hold weights and tokenizers in older forms, too, which are not read
    # then.
    yield from sorted(folder.glob("model*.safetensors")) or sorted(
        folder.glob("pytorch_model*.bin")
    )
    tokenizer = folder / "tokenizer.json"
    yield from [tokenizer] if tokenizer.exists() else sorted(folder.glob("*.model"))


def _base_of(folder: Path) -> str:
    """The model that an adapter is for, in words; "" if its file does not tell."""
    with suppress(OSError, ValueError, AttributeError):
        settings = json.loads((folder / _ADAPTER).read_bytes())
        base = settings.get("base_model_name_or_path")
        return f" of {base}" if base else ""
    return ""
