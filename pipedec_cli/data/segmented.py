"""What `segment` leaves for the other commands: the segmented splits, and how they were segmented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import read_records
from pipedec_cli.data.records import SPLITS, Record, Segmentation, SplitName
from pipedec_cli.data.segmentation import PhraseSegmenter, Segmenter, make_segmenter
from pipedec_cli.data.sentences import SentenceModel
from pipedec_cli.data.writing import atomic_writer, naming, read_json, record_fields, to_json, write_json

SEGMENTATION_FILE: Final = "segmentation.json"
SENTENCES_FILE: Final = "sentences.json"
_SEGMENT_FIRST = "run `pipedec segment DATA` first, or give a path"


def load_split(path: Path) -> list[Record]:
    """The records of a split as `segment` wrote it, each with its target and target_segments; may be empty.

    Raises:
        UserError: the file is not there, or not what `segment` writes.
    """
    if not path.exists():
        raise UserError("no such file", where=str(path), todo=_SEGMENT_FIRST)
    records = list(read_records(path, need_target=True, allow_empty=True))
    for record in records:
        if record.target_segments is None:
            raise UserError(
                "the target is not segmented", where=record.where, todo="run `pipedec segment` on this file"
            )
    return records


def load_segmentation(path: Path) -> Segmentation:
    """How a data set was segmented, from its segmentation.json.

    Raises:
        UserError: the file is not there, or not what `segment` writes.
    """
    if not path.exists():
        raise UserError("no such file", where=str(path), todo=_SEGMENT_FIRST)
    return segmentation_from_json(read_json(path), str(path))


def load_segmenter(folder: Path) -> Segmenter:
    """The segmenter that cut the targets in a folder written by `segment`, to cut predictions in the same way.

    Raises:
        UserError: segmentation.json or sentences.json is not there, or not what `segment` writes.
    """
    return segmenter_of(load_segmentation(folder / SEGMENTATION_FILE), folder)


def segmenter_of(segmentation: Segmentation, folder: Path) -> Segmenter:
    """The segmenter of a segmentation, with the sentence model that a data or checkpoint folder holds.

    Raises:
        UserError: the level needs a sentences.json and it is not there, or not what `segment` writes.
    """
    if segmentation.level == "phrase":
        return make_segmenter("phrase", separators=segmentation.separators)
    path = folder / SENTENCES_FILE
    if not path.exists():
        raise UserError("no such file", where=str(path), todo=_SEGMENT_FIRST)
    return make_segmenter(segmentation.level, model=SentenceModel.from_json(read_json(path), str(path)))


def save_segmenter(folder: Path, segmenter: Segmenter) -> None:
    """Write the sentence model of a segmenter that has one, for `segmenter_of` to find."""
    if not isinstance(segmenter, PhraseSegmenter):
        write_json(folder / SENTENCES_FILE, segmenter.model.to_json())


def save_segmented(
    folder: Path,
    splits: Mapping[SplitName, Sequence[Record]],
    segmentation: Segmentation,
    segmenter: Segmenter,
    details: Mapping[str, Any],
) -> list[Path]:
    """Write what the other commands read: all of it or, on an error, none.

    Args:
        folder: where to; made if need be.
        splits: the segmented records; a split without any becomes an empty file.
        segmentation: how they were segmented.
        segmenter: what segmented them; its sentence model is kept, if it has one.
        details: what else segmentation.json is to hold.

    Returns:
        The files, in the order of writing.
    """
    lines = {f"{name}.jsonl": map(record_fields, splits.get(name, ())) for name in SPLITS}
    whole: dict[str, Any] = {SEGMENTATION_FILE: {**msgspec.to_builtins(segmentation), **details}}
    if not isinstance(segmenter, PhraseSegmenter):
        whole[SENTENCES_FILE] = segmenter.model.to_json()
    with ExitStack() as stack:  # each takes its name only when the last has been written
        files = {name: stack.enter_context(atomic_writer(folder / name)) for name in (*lines, *whole)}
        for name, file in files.items():
            with naming(folder / name):
                if name in lines:
                    file.writelines(to_json(item) + "\n" for item in lines[name])
                else:
                    file.write(to_json(whole[name], indent=2) + "\n")
                file.flush()
    return [folder / name for name in (*lines, *whole)]


def segmentation_from_json(value: Mapping[str, Any], where: str) -> Segmentation:
    """A `Segmentation` from the JSON object that `save_segmented` writes; further keys are passed over.

    Args:
        value: the object.
        where: the file that it stands in, for messages.

    Raises:
        UserError: it is not such an object.
    """
    try:
        return msgspec.convert(value, Segmentation)
    except msgspec.ValidationError:
        raise UserError(
            "not what `pipedec segment` writes", where=where, todo="run `pipedec segment` again"
        ) from None


def recipe_of(path: Path) -> str | None:
    """The recipe that data were segmented with, as their segmentation.json tells; None if there is none."""
    if not path.is_file():
        return None
    content: Any = read_json(path)
    for key in ("manifest", "settings", "recipe"):
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, str) else None
