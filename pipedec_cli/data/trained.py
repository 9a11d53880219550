"""The folder that `pipedec train` writes to: when it holds a model, and what a stopped training has left there.

training.json stands in it from the first moment on and says with what settings and data the training was begun. Last of
all it gets a ``result``: until then the folder holds no model, whatever weights lie in it. The ``checkpoint-N`` folders,
from which a training goes on, are whole once their trainer_state.json is, which comes last into them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import as_json, contents, read_json
from pipedec_cli.data.records import Manifest, Teacher
from pipedec_cli.data.writing import changes, to_json

MANIFEST: Final = "training.json"
STATE: Final = "trainer_state.json"
ADAPTER: Final = "adapter_config.json"
UNFINISHED: Final = ".unfinished-"  # a folder in which a checkpoint is being written begins so
#: What `--model` calls fresh weights: a teacher's shape, or one of those that `model/scratch.py` has the sizes of.
FRESH: Final = ("scratch", *(f"scratch-{size}" for size in ("tiny", "small", "base", "large", "qwen3-0.6b")))
#: What a training begins with: fresh weights, those of a model that began so here, or others; or adapters beside any.
Start = Literal["fresh", "from-scratch", "published", "adapters"]


def begun(folder: Path) -> dict[str, Any]:
    """What training.json says; empty if there is none."""
    path = folder / MANIFEST
    return read_json(path, Manifest, "pipedec train") if path.exists() else {}


def otherwise(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """In which settings or data a training was begun otherwise than another is to be, in words; empty if in none."""
    wanted = json.loads(to_json(now))
    old, new = dict(before.get("settings") or {}), wanted["settings"]
    for made in (old, new):
        made.update(made.pop("training", {}))
        made.pop("data", None)  # which may be called otherwise; what it holds is told by its hash
    read, reading = ([one.get("sha256") for one in made.get("inputs") or ()] for made in (before, wanted))
    return ", ".join(changes(old, new, {**old, **new})) if read == reading else "with other data"


def taught_by(name: str) -> Teacher | None:
    """Whose texts the model of a folder was trained on; None if it was trained on others, or is a hub model."""
    teacher = (begun(Path(name)).get("settings") or {}).get("teacher")
    return teacher and Teacher(teacher["name"], teacher.get("sha256"))


def is_compared(model: Path, plain: Path) -> bool:
    """Whether `report` has anything to compare a pipelined model with: an ordinary one, a teacher, or its waiting schedule."""
    delay = (begun(model).get("settings") or {}).get("delay", "any")
    return is_model(plain) or taught_by(str(model)) is not None or delay == "any"


def curve_of(name: str) -> list[dict[str, float]]:
    """How the training of a folder's model went: each ``update`` with ``loss``, or with ``dev_loss`` and ``dev_score``.

    Empty where no training.json tells, as for a hub model.
    """
    return list((begun(Path(name)).get("result") or {}).get("curve") or ())


def start_of(model: str, *, adapters: bool = False) -> Start:
    """What `train --model` names: a folder's training.json says where its weights once came from, wherever it was moved."""
    if adapters:
        return "adapters"
    if model in FRESH:
        return "fresh"
    before = begun(Path(model))
    first = str((before.get("settings") or {}).get("model"))  # all that older trainings tell
    return "from-scratch" if before.get("from_scratch") or first in FRESH else "published"


def is_model(folder: Path) -> bool:
    """Whether a folder holds a model and no training that has not come to its end; `train` need not have made it."""
    manifest = begun(folder)
    return (folder / "config.json").exists() and not ("settings" in manifest and "result" not in manifest)


def require_model(name: str) -> bool:
    """Whether it is a folder and not a hub name; a `UserError` if neither, or if it holds no model or an unfinished one."""
    folder = Path(name)
    if name == "" or not folder.is_dir():
        if name.count("/") != 1 or name.startswith((".", "/", "~")):
            todo = "give a folder that `pipedec train` made or a hub name"
            raise UserError(f"no checkpoint folder {name!r}", todo=todo)
        return False
    if (folder / MANIFEST).exists() and not is_model(folder):
        todo = "finish it with `pipedec train --resume` and its settings, or start over with --overwrite"
        raise UserError("its training has not come to its end", where=name, todo=todo)
    if not (folder / "config.json").exists():
        raise UserError(f"cannot load the checkpoint {name}: not a model", todo="it holds no config.json")
    return True


def require_start(name: str) -> None:
    """A `UserError` unless a training can begin with it: fresh weights, or a model that is there."""
    if name.startswith("scratch") and name not in FRESH and not Path(name).is_dir():
        todo = f"use one of {', '.join(FRESH[1:])}, or {FRESH[0]} with --teacher"
        raise UserError(f"there is no shape {name!r}", todo=todo)
    if name not in FRESH:
        require_model(name)


def checkpoints(folder: Path) -> list[Path]:
    """The whole ``checkpoint-N`` folders, the newest last."""
    found = {}
    for state in folder.glob(f"checkpoint-*/{STATE}"):
        number = state.parent.name.rpartition("-")[2]
        with suppress(UserError):  # torn
            if number.isdecimal() and as_json(contents(state), str(state)):
                found[int(number)] = state.parent
    return [found[number] for number in sorted(found)]


def forget(checkpoints: Iterable[Path]) -> None:
    """Remove ``checkpoint-N`` folders, so that one that is half removed does not pass for whole."""
    for path in checkpoints:
        (path / STATE).unlink(missing_ok=True)
        shutil.rmtree(path)


def keep_last(folder: Path, count: int) -> list[Path]:
    """Remove all ``checkpoint-N`` folders but the last ones, which it gives."""
    found = checkpoints(folder)
    forget(found[: -count or None])
    return found[-count:] if count else []


def clean(folder: Path) -> list[str]:
    """Remove what a killed training was just writing; gives its names."""
    half = sorted({*folder.glob("checkpoint-*")}.difference(checkpoints(folder)))
    forget(half)
    unfinished = [*folder.glob(f"{UNFINISHED}*"), *folder.glob(f"checkpoint-*/{UNFINISHED}*")]
    for path in unfinished:
        shutil.rmtree(path)
    return [path.name for path in (*half, *unfinished)]


def size(folders: Iterable[Path]) -> int:
    """The bytes that folders take on disk."""
    return sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())
