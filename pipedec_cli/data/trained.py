"""The folder that `pipedec train` writes: when it holds a model, and its ``checkpoint-N`` folders.

Its manifest, training.json, gets a ``result`` last. Until then the folder holds no
model, whatever weights are in it. A ``checkpoint-N`` folder, from which a training goes
on, is whole if it has a trainer_state.json, which is written last.
"""

import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, get_args

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.model_files import require_file, require_readable, require_whole
from pipedec_cli.data.reading import as_json, contents, read_json
from pipedec_cli.data.records import Family, Manifest, Teacher
from pipedec_cli.data.resumable import TRAINING_FILE, Artifact
from pipedec_cli.data.writing import remove_partials, writer_of

STATE: Final = "trainer_state.json"
UNFINISHED: Final = ".unfinished-"  # how the name of a folder begins in which a checkpoint is being written
_SIZES: Final = ("tiny", "small", "base", "large", "qwen3-0.6b", "demo")
#: Fresh weights, as `--model` calls them: of the teacher's shape, or of a shape in
#: `model/scratch.py`.
FRESH: Final = ("scratch", *(f"scratch-{size}" for size in _SIZES))
#: The same of another family than T5, such as ``scratch-tiny-llama``.
_FRESH_OF_FAMILIES: Final = frozenset(
    f"{name}-{family}" for name in FRESH[1:] for family in get_args(Family)
)
#: The name of a GGUF file on the hub.
_HUB_FILE: Final = re.compile(r"[\w-][\w.-]*/[\w.-]+:[\w./-]+")
#: What a training starts from: fresh weights, a model that once started so, another
#: model, or adapters beside a model.
Start = Literal["fresh", "from-scratch", "published", "adapters"]


def trained_as(name: str) -> Mapping[str, Any]:
    """How `pipedec train` made a checkpoint; {} if it did not."""
    config = Path(name, "config.json")
    if not config.is_file():
        return {}
    trained = read_json(config, Manifest, "pipedec train").get("pipedec")
    return trained if isinstance(trained, dict) else {}


def taught_by(name: str) -> Teacher | None:
    """The teacher of the model in a folder: the model whose texts it was trained on.

    None if there was no teacher, and if `name` is a model of the hub.
    """
    teacher = Artifact.training(Path(name)).settings.get("teacher")
    return teacher and Teacher(teacher["name"], teacher.get("sha256"))


def is_compared(model: Path, sequential: Path) -> bool:
    """Whether `report` has something to compare a pipelined model with.

    That is a sequential model in the folder `sequential`, its teacher, or itself if it
    was trained for any delay: with the delay "wait" it decodes as a sequential model.
    """
    delay = Artifact.training(model).settings.get("delay", "any")
    return is_model(sequential) or taught_by(str(model)) is not None or delay == "any"


def examples_seen(name: str) -> int | None:
    """The number of examples that a folder's training learnt, each pass counted; None if it is not known."""
    return (Artifact.training(Path(name)).manifest.get("result") or {}).get(
        "examples_seen"
    )


def curve_of(name: str) -> list[dict[str, float]]:
    """The curve of a folder's training: each ``update`` with ``loss``, or with ``dev_loss`` and ``dev_score``."""
    result = Artifact.training(Path(name)).manifest.get("result") or {}
    return list(result.get("curve") or ())


def is_fresh(name: str) -> bool:
    """Whether a name is that of fresh weights."""
    return name in FRESH or name in _FRESH_OF_FAMILIES


def start_of(model: str, *, adapters: bool = False) -> Start:
    """What a training starts from, by the `model` of `train --model` and whether only `adapters` beside it are trained.

    A folder's training.json tells whether that model once started from fresh weights.
    """
    if adapters:
        return "adapters"
    if is_fresh(model):
        return "fresh"
    if Artifact.training(Path(model)).manifest.get("from_scratch"):
        return "from-scratch"
    return "published"


def is_gguf(name: str | Path) -> bool:
    """Whether a name is that of a GGUF file: a path, or ``owner/name:file.gguf`` on the hub."""
    return str(name).lower().endswith(".gguf") and not Path(name).is_dir()


def is_model(folder: Path) -> bool:
    """Whether a path is a model: a GGUF file, or a folder with a model and no unfinished training.

    The folder may be of another program, and have no training.json.
    """
    if folder.is_file():
        return is_gguf(folder)
    training = Artifact.training(folder)
    return (folder / "config.json").exists() and (
        training.whole or not training.settings
    )


def require_ended(folder: Path) -> None:
    """A `UserError` if a folder holds no model yet, and a process writes one into it now."""
    if is_model(folder):
        return
    writer = writer_of(folder)
    if writer:
        todo = "wait for its end, or give another model"
        raise UserError(f"is being written by {writer}", where=folder, todo=todo)


def unended(folder: Path, command: str, settings: str) -> UserError:
    """The error of a folder whose training has not come to its end: the `command`, with which `settings`, finishes it."""
    again = f"start over with `{command} --overwrite` and {settings}"
    if checkpoints(folder):
        again = f"finish it with `{command} --resume` and {settings}, or start over with --overwrite"
    what = "its training has not come to its end"
    return UserError(what, where=folder, todo=again)


def require_model(name: str) -> bool:
    """Check that a name can be that of a model, and return whether it is a folder.

    Else it is a GGUF file (one file with weights, tokenizer and settings) or a name on
    the hub, which is not asked. A `UserError` if it is none of these, or a folder
    without a finished model.
    """
    folder = Path(name)
    if is_gguf(name):
        if not folder.is_file() and not _HUB_FILE.fullmatch(name):
            todo = "give a path, or OWNER/NAME:FILE.gguf for a file of the hub"
            raise UserError(f"no GGUF file {name!r}", todo=todo)
        if folder.is_file():
            require_file(folder)
        return False
    if name == "" or not folder.is_dir():
        if name.count("/") != 1 or name.startswith((".", "/", "~")):
            todo = "give the folder of a model, a GGUF file, or a hub name (OWNER/NAME)"
            raise UserError(f"no checkpoint folder {name!r}", todo=todo)
        return False
    require_readable(folder)
    require_ended(folder)
    require_whole(folder)
    if (folder / TRAINING_FILE).exists() and not is_model(folder):
        raise unended(folder, "pipedec train", "its --out and settings")
    if not (folder / "config.json").exists():
        what = (
            f"cannot load the checkpoint {name}: not a model; it holds no config.json"
        )
        raise UserError(
            what, todo="give the folder of a model, or a hub name (OWNER/NAME)"
        )
    return True


def require_start(name: str) -> None:
    """A `UserError` unless a training can start from it: fresh weights, or a model that is there."""
    if is_fresh(name):
        return
    if name.startswith("scratch") and not Path(name).is_dir():
        todo = (
            f"use one of {', '.join(FRESH[1:])}, with -FAMILY behind it for another "
            f"family than T5, or {FRESH[0]} with --teacher"
        )
        raise UserError(f"there is no shape {name!r}", todo=todo)
    require_model(name)


def checkpoints(folder: Path) -> list[Path]:
    """The whole ``checkpoint-N`` folders, the newest last."""
    by_number = {}
    for state in folder.glob(f"checkpoint-*/{STATE}"):
        number = state.parent.name.rpartition("-")[2]
        with suppress(UserError):  # torn
            if number.isdecimal() and as_json(contents(state), str(state)):
                by_number[int(number)] = state.parent
    return [by_number[number] for number in sorted(by_number)]


def best_checkpoint(folder: Path) -> Path | None:
    """The ``checkpoint-N`` folder with the best weights so far, as the newest one names it; None if there is none."""
    written = checkpoints(folder)
    if not written:
        return None
    state = as_json(contents(written[-1] / STATE), STATE)
    best = folder / f"checkpoint-{state.get('best_global_step')}"
    return best if best in written else None


def forget(folders: Iterable[Path]) -> None:
    """Remove ``checkpoint-N`` folders. The file that makes a folder whole goes first."""
    for folder in folders:
        (folder / STATE).unlink(missing_ok=True)
        shutil.rmtree(folder)


def clean(folder: Path) -> list[str]:
    """Remove the folders and files of a training that a killed process has left half written; returns their names."""
    half = sorted({*folder.glob("checkpoint-*")}.difference(checkpoints(folder)))
    forget(half)
    unfinished = [
        *folder.glob(f"{UNFINISHED}*"),
        *folder.glob(f"checkpoint-*/{UNFINISHED}*"),
    ]
    forget(unfinished)
    files = remove_partials(folder)
    return [path.name for path in (*half, *unfinished, *files)]
