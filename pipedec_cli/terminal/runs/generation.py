"""What `pipedec generate` does, from the sources to the file of predictions, and what it says on the way."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import GenerationFiles, Inputs, line, other_versions
from pipedec_cli.data.records import Generated, Record
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.data.writing import JsonLinesAppender, to_json
from pipedec_cli.model.decoder import Decoder
from pipedec_cli.terminal.console import Talk, many, visible, write_stdout
from pipedec_cli.terminal.live import LiveGrid, LiveScreen
from pipedec_cli.terminal.progress import GenerationProgress
from pipedec_cli.terminal.runs.generation_inputs import read_data, read_texts
from pipedec_cli.terminal.runs.generation_request import GenerateRequest
from pipedec_cli.terminal.runs.generation_setup import Setup, set_up
from pipedec_cli.terminal.runs.generation_tally import Tally
from pipedec_cli.terminal.runs.kernels import announce_compiling
from pipedec_cli.terminal.views.generation import describe_method, describe_run, describe_sources

STDOUT: Final = "-"
#: Characters of a source that the live view's heading gets to see.
HEADING: Final = 200

#: Takes one finished line.
Emit = Callable[[Mapping[str, Any]], None]


def run_generation(
    request: GenerateRequest,
    *,
    out: str | None,
    resume: bool,
    live: bool,
    workspace: Path | None,
    talk: Talk,
    plain: bool = True,
) -> dict[str, Any] | None:
    """Generate as requested.

    Args:
        request: what to generate from, and how.
        out: a file, or ``-`` for lines on stdout; by default a file in the workspace, or stdout for texts.
        resume: go on where a stopped run of the same settings and data has left off.
        live: show the grid while it is decoded.
        workspace: where the commands find each other's results.
        talk: where to say what happens.
        plain: print what comes of texts as it is, not as lines of JSON.

    Returns:
        what was done, as plain values; None if it went to stdout.

    Raises:
        UserError: something that was asked for is not there or does not fit.
    """
    place = Workspace.find(workspace)
    to_stdout = out == STDOUT or (out is None and bool(request.texts))
    if to_stdout and resume:
        raise UserError("--resume goes on with a file, and this run writes none", todo="name one with --out")
    if out is not None and not to_stdout:
        _check_out(Path(out), request)
    if request.texts:
        inputs, location = read_texts(request.texts), "--text"
    else:
        inputs, location = read_data(request, place, talk)
    setup = set_up(request, inputs, location, place, talk, live=live)
    run = Run(setup, inputs, talk, trace=request.trace, live=live)
    if to_stdout:
        run.generate(_print_text if plain and out is None else _print_line)
        return None
    return run.write(Path(out) if out else place.generations(setup.name), resume=resume)


class Run:
    """A run that has been set up.

    Attributes:
        tally: what was counted.
        seconds: wall time of generating, loading left out.
    """

    def __init__(self, setup: Setup, inputs: Inputs, talk: Talk, *, trace: bool, live: bool) -> None:
        """Do nothing yet.

        Args:
            setup: model and settings.
            inputs: the sources.
            talk: where to say what happens.
            trace: whether lines hold the grid.
            live: whether to show it.
        """
        self.tally = Tally(unknown_id=setup.decoder.checkpoint.tokenizer.unk_token_id)
        self.seconds = 0.0
        self._setup = setup
        self._inputs = inputs
        self._talk = talk
        self._trace = trace
        self._live = live

    def write(self, path: Path, *, resume: bool) -> dict[str, Any]:
        """Generate to a file, with its manifest beside it.

        Args:
            path: the file; where it is no regular one, such as /dev/null, it gets no manifest.
            resume: go on behind the lines that are there.

        Returns:
            what was done, as plain values.

        Raises:
            UserError: the lines that are there are of another run.
        """
        files = GenerationFiles(path) if path.is_file() or not path.exists() else None
        done = self._take_up(files, resume=resume) if files else 0
        if done < self._inputs.count:
            with self._explained(path, files), JsonLinesAppender(path, resume=done > 0) as lines:
                self.generate(lines.write, done)
        self._talk.say(f"{many(self._inputs.count, 'prediction')} in {path}")
        return {
            "out": str(path),
            "rows": self._inputs.count,
            "resumed_from": done,
            **self.tally.as_json(),
            "seconds": round(self.seconds, 3),
            "examples_per_second": self._rate(self.tally.examples),
            "tokens_per_second": self._rate(self.tally.tokens),
            "settings": self._setup.manifest["settings"],
        }

    def generate(self, emit: Emit, done: int = 0) -> None:
        """Generate, and hand each line on as soon as the order allows.

        Args:
            emit: takes the lines, in input order.
            done: records to pass over.

        Raises:
            UserError: the examples in flight do not fit the device's memory.
        """
        import torch

        records: dict[int, Record] = {}

        def sources() -> Iterator[str]:
            for index, record in enumerate(islice(self._inputs.read(), done, None)):
                records[index] = record
                yield record.source

        announce_compiling(self._setup.decoder.checkpoint.device.type, self._talk)
        generator = self._setup.decoder
        self._talk.say(f"decoder steps: {generator.engine().kernels}")
        began = time.perf_counter()
        try:
            with self._screen(generator, records, self._inputs.count - done) as screen:
                for item in generator.run(sources(), self._setup.method):
                    if isinstance(item, Generated):
                        record = records.pop(item.index)
                        made = structs.replace(item, record=record)
                        emit(line(made, self._inputs.names, trace=self._trace))
                        self.tally.add(record.id, item)
                    else:
                        screen.on(item)
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"{self._setup.batch_size} examples at a time do not fit the memory of {self._setup.decoder.checkpoint.device}",
                todo="give a smaller --batch-size, and --resume to go on",
            ) from error
        self.seconds = time.perf_counter() - began
        for warning in describe_sources(self.tally, self._setup.max_source_tokens):
            self._talk.warn(warning)
        for said in describe_run(self.tally, self.seconds, self._setup.method):
            self._talk.say(said)

    def _take_up(self, files: GenerationFiles, *, resume: bool) -> int:
        """Make the files ready to be written, and say what becomes of what stood there; returns the lines to keep."""
        manifest = self._setup.manifest
        begun = files.lines.exists()
        if not (resume and begun):
            kept = files.start(manifest)
            if kept is not None:
                self._talk.say(f"what stood in {files.lines.name} is kept as {kept.name}")
            if resume:
                self._talk.say(f"there is no {files.lines} to go on with: starting at the beginning")
            return 0
        done = files.done(manifest, self._inputs.read())
        if changed := other_versions(files.manifest, manifest):
            self._talk.warn(f"other versions than when this run was begun: {', '.join(changed)}")
        what = "is whole already" if done == self._inputs.count else "goes on"
        self._talk.say(f"{files.lines} {what}: {done:,} of {self._inputs.count:,} lines are there")
        return done

    def _screen(
        self, generator: Decoder, records: Mapping[int, Record], total: int
    ) -> LiveScreen | GenerationProgress:
        """What shows the decoding's events."""
        if not self._live:
            return GenerationProgress(self._talk, total)
        grid = LiveGrid(
            generator.text.decode,
            eos=self._setup.method.eos,
            method=describe_method(self._setup.method),
            name=lambda index: records[index].source[:HEADING] if index in records else "",
            total=total,
        )
        return LiveScreen(self._talk, grid)

    @contextmanager
    def _explained(self, path: Path, files: GenerationFiles | None) -> Iterator[None]:
        """Say what is left of a run that is stopped, and how it goes on."""
        try:
            yield
        except (KeyboardInterrupt, OSError) as error:
            hint = "there is nothing to resume from"
            if files is not None and files.begun:
                whole = f"{files.count():,} of {self._inputs.count:,} lines are in {path}"
                hint = f"{whole}; the same command with --resume goes on"
            if isinstance(error, OSError) and error.filename in (None, str(path)):
                raise OSError(error.errno, f"{error.strerror}; {hint}", str(path)) from error
            self._talk.warn(f"stopped: {hint}")
            raise

    def _rate(self, count: int) -> float | None:
        return round(count / self.seconds, 3) if self.seconds else None


def _check_out(path: Path, request: GenerateRequest) -> None:
    """Refuse a place that predictions cannot be written to.

    Raises:
        UserError: a folder, a file to be compressed, or the data themselves.
    """
    if path.is_dir():
        raise UserError("is a folder", where=str(path), todo="name a file in it")
    if path.suffix == ".gz":
        raise UserError("predictions are not compressed", where=str(path), todo="leave out .gz")
    if request.data is not None and path.exists() and path.resolve() == Path(request.data).resolve():
        raise UserError(
            "would be written over with what is read from it", where=str(path), todo="give another --out"
        )


def _print_line(line: Mapping[str, Any]) -> None:
    write_stdout(to_json(line) + "\n")


def _print_text(line: Mapping[str, Any]) -> None:
    text = line["prediction"]
    write_stdout((visible(text) if sys.stdout.isatty() else text) + "\n")
