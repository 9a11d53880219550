"""A run whose result is a table: its lines are written beside the table, which is made of them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pipedec_cli.data.errors import log
from pipedec_cli.data.fields import Keys, Kind
from pipedec_cli.data.predictions import PredictionsFile, lines_path
from pipedec_cli.data.reading import real
from pipedec_cli.data.tables import write_table
from pipedec_cli.data.writing import backups, only_writer
from pipedec_cli.events import Listen
from pipedec_cli.jobs.run import Run, write
from pipedec_cli.jobs.tally import GenerateResult
from pipedec_cli.objects.tree import Part


def write_with_table(
    run: Run, path: Path, listen: Listen, *, resume: bool, again: str
) -> GenerateResult:
    """Write a run's lines, and then the table at `path`: also of the lines that Ctrl-C has left. See `write`.

    An earlier table is kept as FILE.bak.
    """
    file = PredictionsFile(lines_path(path))
    with only_writer(path, todo="choose another --out"):
        if not resume:
            _set_aside(path)
        try:
            result = write(run, file.path, listen, resume=resume, again=again)
        except KeyboardInterrupt:
            if file.begun and file.count():
                _tabulate(run, path, file)
            raise
        _tabulate(run, path, file)
    return replace(result, out=str(path))


def _tabulate(run: Run, path: Path, file: PredictionsFile) -> None:
    """Write the table of the lines."""
    _set_aside(path)
    fields = run.decoder.fields
    write_table(path, file, dict(_keys_of(fields.tree)) if fields else {})
    log.info(f"the table of these lines is {path}")


def _set_aside(path: Path) -> None:
    """Keep what stands there as FILE.bak, beside the file that a link leads to."""
    if path.is_file() and path.stat().st_size:
        file = real(path)
        (kept,) = backups(file)
        file.replace(kept)
        log.info(f"what stood in {path.name} is kept as {kept.name}")


def _keys_of(part: Part, place: Keys = ()) -> Iterator[tuple[Keys, Kind]]:
    """The paths of the parts of a schema that have a column each: all that stand in no list, map or alternative.

    None for an object whose keys are not known: its text is a column.
    """
    if part.shape == "object" and 1 not in part.parts:
        for key, inner in part.parts.items():
            yield from _keys_of(inner, (*place, key))
    elif place:
        yield place, part.field.kind if part.shape == "value" else "any"
