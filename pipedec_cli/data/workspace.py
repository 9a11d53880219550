"""Where the commands find each other's results when no path is given, and what `segment` leaves for the others.

pipedec-workspace/
    data/          train.jsonl, dev.jsonl, test.jsonl, segmentation.json, sentences.json   (segment)
    models/        pipelined/, sequential/: folders that transformers loads                (train)
    generations/   NAME.jsonl and NAME.manifest.json, a decoder each                       (generate, report)
    scores/        NAME.json and NAME.examples.jsonl                                       (score)
    report/        report.json, report.md, report.html                                     (report)

Loading raises a `UserError` for what is not there or is not what `segment` writes.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.inputs import read_records
from pipedec_cli.data.reading import checked, read_json, require_place
from pipedec_cli.data.records import SPLITS, Record, Segmentation, SplitName
from pipedec_cli.data.resumable import SEGMENTATION_FILE, Artifact
from pipedec_cli.data.segmentation import Segmenter, SentenceSegmenter, make_segmenter
from pipedec_cli.data.sentences import SentenceModel, SentenceParameters
from pipedec_cli.data.writing import (
    record_fields,
    require_own_together,
    to_json,
    write_json,
    write_together,
)

SENTENCES_FILE: Final = "sentences.json"


class Workspace:
    """A folder in which every step of the workflow has its place. Nothing is made until a command writes there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.scores = root / "scores"
        self.report = root / "report"
        self.segmentation = self.data / SEGMENTATION_FILE

    @classmethod
    def find(cls, given: Path | None = None) -> Self:
        """The folder that was given, else the one that PIPEDEC_WORKSPACE names, else ``pipedec-workspace`` here."""
        root = given or Path(os.environ.get("PIPEDEC_WORKSPACE") or "pipedec-workspace")
        require_place(root, folder=True)
        return cls(root)

    def split(self, name: SplitName) -> Path:
        """The file of one split."""
        return self.data / f"{name}.jsonl"

    def model(self, decoder: str) -> Path:
        """The checkpoint folder of ``pipelined`` or ``sequential``."""
        return self.root / "models" / decoder

    def generations(self, name: str) -> Path:
        """The predictions of one decoder, such as ``pipelined-delay2``."""
        return self.root / "generations" / f"{name}.jsonl"

    def require(self, path: Path, made_by: str) -> Path:
        """The path, if it is there; else a `UserError` that names the command that makes it."""
        if not path.exists():
            todo = f"run `{made_by}` first, or give a path"
            raise UserError(f"{path} is not there yet", todo=todo)
        return path


def read_split(path: Path, need_target: bool = True) -> Iterator[Record]:
    """The records of a split as `segment` wrote it; there may be none.

    A UserError for a target that is not segmented and, with `need_target`, for a record
    without a target.
    """
    for record in read_records(_there(path), allow_empty=True):
        if record.target is None and need_target:
            todo = "give --teacher, a model that writes the targets"
            raise UserError("the record has no target", where=record.where, todo=todo)
        if record.target is not None and record.target_segments is None:
            raise UserError(
                "the target is not segmented",
                where=record.where,
                todo="run `pipedec segment` on this file",
            )
        yield record


def load_segmentation(path: Path) -> Segmentation:
    """How a data set was segmented, from its segmentation.json."""
    return checked(
        read_json(_there(path), Segmentation, "pipedec segment"),
        Segmentation,
        str(path),
    )


def load_segmenter(folder: Path, segmentation: Segmentation | None = None) -> Segmenter:
    """What cuts texts as the data of a folder were cut.

    The folder is one that `segment` wrote, or that of a model, whose `segmentation`
    stands in its settings. Its file sentences.json says where sentences end.
    """
    segmentation = segmentation or load_segmentation(folder / SEGMENTATION_FILE)
    level = segmentation.level
    if level in ("phrase", "field"):
        return make_segmenter(
            level, separators=segmentation.separators, fields=segmentation.fields
        )
    path = _there(folder / SENTENCES_FILE)
    parameters = read_json(path, SentenceParameters, "pipedec segment")
    model = SentenceModel(checked(parameters, SentenceParameters, str(path)))
    return SentenceSegmenter(model, clauses=level == "clause")


def save_segmenter(folder: Path, segmenter: Segmenter) -> None:
    """Write the sentence model of a segmenter that has one, for `load_segmenter` to find."""
    if isinstance(segmenter, SentenceSegmenter):
        write_json(
            folder / SENTENCES_FILE, msgspec.to_builtins(segmenter.model.parameters)
        )


def require_own_data(folder: Path) -> None:
    """Raise a UserError if `save_segmented` would write over files of others."""
    names = (*(f"{name}.jsonl" for name in SPLITS), SENTENCES_FILE)
    require_own_together(
        (folder / name for name in names),
        folder / SEGMENTATION_FILE,
        {"level", "separators"},
        "pipedec segment",
    )


def save_segmented(
    folder: Path,
    splits: Mapping[SplitName, Sequence[Record]],
    segmentation: Segmentation,
    segmenter: Segmenter,
    details: Mapping[str, Any],
) -> list[Path]:
    """Write what the other commands read: all of it or, on an error, none. Returns the files.

    The `details`, such as the manifest, go into segmentation.json beside the
    segmentation.
    """
    artifact = Artifact.segmentation(folder)
    texts: dict[Path, Iterable[str]] = {}
    for name in SPLITS:
        records = splits.get(name, ())
        texts[folder / f"{name}.jsonl"] = (
            to_json(record_fields(record)) + "\n" for record in records
        )
    texts[artifact.manifest_path] = [
        to_json({**msgspec.to_builtins(segmentation), **details}, indent=2) + "\n"
    ]
    if isinstance(segmenter, SentenceSegmenter):
        parameters = msgspec.to_builtins(segmenter.model.parameters)
        texts[folder / SENTENCES_FILE] = [to_json(parameters, indent=2) + "\n"]
    with artifact.lock():
        write_together(texts, last=artifact.manifest_path)
    return list(texts)


def segmented_with(path: Path, setting: str) -> str | None:
    """The value of a setting that data were segmented with, such as the recipe.

    `path` is their segmentation.json. None if there is no such file, or if its manifest
    does not have the setting as a text.
    """
    if not path.is_file():
        return None
    content: Any = read_json(path, Segmentation, "pipedec segment")
    for key in ("manifest", "settings", setting):
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, str) else None


def _there(path: Path) -> Path:
    if not path.exists():
        todo = "run `pipedec segment DATA` first, or give a path"
        raise UserError("no such file", where=path, todo=todo)
    return path
