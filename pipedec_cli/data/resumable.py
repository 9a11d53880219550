"""A file or a folder that one command writes: it is locked, begun, resumable, and whole at the end.

Five things are artifacts: a file of predictions, one shard, the folder of all shards of
a job, the folder of a training, and the folder of a segmentation. Each has a manifest,
a JSON file. The manifest is written before the first byte and says what the artifact is
made with: settings, data, model and versions. When all is written, the manifest gets a
``result``.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Final, Self

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import read_json, real, require_writable
from pipedec_cli.data.records import Manifest
from pipedec_cli.data.writing import backups, only_writer, to_json, write_json

#: Settings that change the speed and not the result. A run that goes on may have other
#: values of them.
FREE_SETTINGS: Final = frozenset({"batch_size", "threads"})
#: The manifests of folders.
TRAINING_FILE = "training.json"
SEGMENTATION_FILE = "segmentation.json"
JOB_FILE = "manifest.json"


class Artifact:
    """A file or folder at `path` with its manifest, which the command `made_by` writes.

    `free` are the settings that a run that goes on may change. Making the object
    changes nothing on disk.
    """

    def __init__(
        self,
        path: Path,
        manifest_path: Path,
        made_by: str,
        free: Collection[str] = FREE_SETTINGS,
    ) -> None:
        self.path = path
        self.manifest_path = manifest_path
        self.made_by = made_by
        self.free = free
        self.is_folder = manifest_path.parent == path
        self.spell: Callable[[str], str] = str  # a setting's name as a user types it

    @classmethod
    def training(cls, folder: Path) -> Self:
        """The folder of a training. Its data may have another path, but must have the same content."""
        return cls(folder, folder / TRAINING_FILE, "pipedec train", {"data"})

    @classmethod
    def segmentation(cls, folder: Path) -> Self:
        """The folder of a segmentation. Its manifest is written last: where it is, all is whole."""
        return cls(folder, folder / SEGMENTATION_FILE, "pipedec segment")

    @classmethod
    def job(cls, folder: Path) -> Self:
        """The folder that holds all shards of a job."""
        return cls(folder, folder / JOB_FILE, "pipedec generate --part")

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest as it is on disk, {} if there is none; a `UserError` if the file is not a manifest."""
        path = self.manifest_path
        return read_json(path, Manifest, self.made_by) if path.is_file() else {}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings in the manifest, {} if there are none."""
        return self.manifest.get("settings") or {}

    @property
    def begun(self) -> bool:
        """Whether a run has started to write here."""
        return self.manifest_path.is_file()

    @property
    def whole(self) -> bool:
        """Whether a run has written all of it."""
        return self.manifest.get("result") is not None

    def lock(
        self, *, todo: str = "choose another --out"
    ) -> AbstractContextManager[None]:
        """Be the only writer; a `UserError` that names the other writer, if there is one, and says what `todo`."""
        return only_writer(self.path, folder=self.is_folder, todo=todo)

    def check_same(
        self, manifest: Mapping[str, Any], *, todo: str, free: Collection[str] = ()
    ) -> None:
        """Compare the manifest of a run that goes on with that of the run that began the artifact.

        A `UserError` names what differs, and says what `todo`. The settings `free` may
        differ, beside those that always may.
        """
        may_differ = {*self.free, *free}
        changed = "; ".join(
            settings_diff(self.manifest, manifest, may_differ, self.spell)
        )
        if changed:
            raise UserError(f"cannot go on: {changed}", where=self.path, todo=todo)

    def version_changes(self, manifest: Mapping[str, Any]) -> list[str]:
        """Packages that had another version when this was begun; results may differ a little."""
        before = self.manifest.get("versions") or {}
        changes = []
        for name, version in manifest["versions"].items():
            if before.get(name) != version:
                changes.append(f"{name} {before.get(name)} → {version}")
        return changes

    def start(self, manifest: Mapping[str, Any]) -> Path | None:
        """Begin anew. Returns the path under which an earlier file is kept, beside the file that a link leads to."""
        require_writable(self.path)
        kept = None
        if self.path.is_file() and self.path.stat().st_size:
            file = real(self.path)
            manifest_file = real(self.manifest_path)
            kept, kept_manifest = backups(file, manifest_file)
            file.replace(kept)  # a link stays
            with suppress(FileNotFoundError):
                manifest_file.replace(kept_manifest)
        # The old file is gone before the new manifest comes: a kill in between leaves
        # no file with a wrong manifest.
        write_json(self.manifest_path, manifest)
        return kept

    def finish(self, result: Mapping[str, Any]) -> None:
        """Note in the manifest that all is written, and the `result`."""
        before = self.manifest
        if before.get("result") != result:
            write_json(self.manifest_path, {**before, "result": result})


def settings_diff(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    free: Collection[str] = FREE_SETTINGS,
    spell: Callable[[str], str] = str,
) -> Iterator[str]:
    """What differs between two manifests, in words: settings, shards, model, data.

    Settings that are `free` may differ. `spell` makes of a setting's name what a user
    types.
    """
    old = _settings_of(before)
    new = _settings_of(now)
    for name in {**new, **old}:
        if name not in free and old.get(name) != new.get(name):
            yield _difference(spell(name), old.get(name), new.get(name))
    for name in ("model", "drafter"):
        if _sha256(before.get(name)) != _sha256(now.get(name)):
            yield f"the {name} changed"
    # With another limit other records are read: their hash says nothing of the data.
    is_same_limit = old.get("limit") == new.get("limit")
    if is_same_limit and _data_hashes(before) != _data_hashes(now):
        yield "the data changed"


def _difference(name: str, was: Any, is_now: Any) -> str:
    """How a setting differs, in words; of a setting with parts, which parts do. A hash says nothing to a reader."""
    if not isinstance(was, dict) or not isinstance(is_now, dict):
        return f"{name} was {_value_in_words(was)} and is now {_value_in_words(is_now)}"
    parts = []
    for part in {**is_now, **was}:
        if part != "sha256" and was.get(part) != is_now.get(part):
            parts.append(_difference(part, was.get(part), is_now.get(part)))
    changed = f"the {name} changed"
    return f"{changed} ({', '.join(parts)})" if parts else changed


def _settings_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """All settings in one table, those of a training and the shards as well."""
    settings = dict(manifest.get("settings") or {})
    settings.update(settings.pop("training", {}))
    for name in ("shard", "shards"):
        settings[name] = manifest.get(name)
    return settings


def _value_in_words(value: Any) -> str:
    if value is None:
        return "not given"
    return to_json(value)


def _data_hashes(manifest: Mapping[str, Any]) -> list[Any]:
    """The hash of all records, where the manifest has it; else the hashes of the files."""
    data = manifest.get("data")
    if data:
        return [_sha256(data)]
    return [_sha256(file) for file in manifest.get("inputs") or ()]


def _sha256(content: Mapping[str, Any] | None) -> Any:
    """The hash in what a manifest says of a file, a model or the data; None if it says nothing."""
    return (content or {}).get("sha256")
