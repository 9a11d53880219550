"""Commands that are killed at random moments and run again: `python -m tests.trials.kills --each 50`.

Each is killed with SIGKILL at a moment drawn from the time that it takes, and then the
same command is run again, with --resume where it has one. What stands there in the end
must be what an undisturbed run leaves, byte for byte, but for times; and what stands
there after the kill must be whole, or be refused. A run is a fork of this process,
which has imported everything already: so the moments are spread over the work, not over
the imports.
"""

import argparse
import contextlib
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from pipedec_cli.cli.app import main
from pipedec_cli.data.cache import cache_folder
from pipedec_cli.data.demo import make_demo
from pipedec_cli.data.trained import checkpoints, is_model
from pipedec_cli.data.workspace import read_split
from pipedec_cli.data.writing import write_json_lines
from pipedec_cli.model.engine.native import store

#: Imported before the first fork.
HEAVY: Final = (
    "torch transformers scipy.stats nltk rouge_score.rouge_scorer tokenizers datasets pipedec_cli.training.trainer "
    "pipedec_cli.decoding.decoder pipedec_cli.model.scratch pipedec_cli.jobs.run pipedec_cli.jobs.report"
)
#: What a table counts; in all but the first, any other number than 0 is a fault.
COLUMNS: Final = ("kills", "lost", "doubled", "torn", "unequal", "failed", "left over")

State = dict[str, bytes]


class Trial:
    """One command: where it begins, how it goes on, and what its folder must hold in the end."""

    #: The command, and how it goes on after a kill: by the first of these that does not
    #: end in a refusal.
    command: str
    again: tuple[tuple[str, ...], ...] = ((),)
    #: Of so many kills one comes where `late` says.
    late_each = 5

    def __init__(self, ground: Path) -> None:
        self.ground = ground  # a workspace with data and two models

    def prepare(self, folder: Path) -> None:
        """What stands there before the command is run for the first time."""

    def arguments(self, folder: Path) -> list[str]:
        return self.command.format(folder=folder, ground=self.ground).split()

    def state(self, folder: Path) -> State:
        """What must be equal in the end, by name."""
        files = (path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}

    def late(self, folder: Path) -> Path | None:
        """What comes near the end: every fifth kill comes just behind it, in a moment that chance seldom hits."""
        return None

    def environment(self, folder: Path) -> dict[str, str]:
        """Variables of the command's environment."""
        return {}

    def torn(self, folder: Path, whole: State) -> int:
        """Things that the kill has left half written and that pass for whole."""
        return 0


def without_times(lines: bytes) -> bytes:
    """Predictions but for what took how long."""
    rows = [json.loads(line) for line in lines.splitlines()]
    return "".join(json.dumps({**row, "seconds": 0}) + "\n" for row in rows).encode()


class Generate(Trial):
    command = "generate -w {ground} --out {folder}/out.jsonl --batch-size 2"
    again = (("--resume",),)

    def state(self, folder: Path) -> State:
        state = super().state(folder)
        return {
            name: without_times(state[name]) if name.endswith("l") else state[name]
            for name in state
        }

    def torn(self, folder: Path, whole: State) -> int:
        """All but the last line must be the first ones of an undisturbed run; the last may be cut short."""
        out = folder / "out.jsonl"
        lines = out.read_bytes().splitlines(keepends=True) if out.exists() else []
        kept = b"".join(line for line in lines if line.endswith(b"\n"))
        return int(not whole["out.jsonl"].startswith(without_times(kept)))


class Pack(Generate):
    """Weights that are packed, and kept in a cache that holds nothing but kernels."""

    command = "generate --model {ground}/wide --text red --max-tokens 2 --dtype int8 --out {folder}/out.jsonl"
    again = (
        (),
    )  # the weights are packed once more, also where the line was whole before the kill
    late_each = 1

    def prepare(self, folder: Path) -> None:
        cache = folder / "cache" / "pipedec"
        cache.mkdir(parents=True, mode=0o700)
        for path in cache_folder().glob("kernels-*.*"):
            shutil.copy2(path, cache)
        if not (self.ground / "wide").exists():
            os.waitpid(forked(self.make_model), 0)

    def make_model(self) -> None:
        """A model whose packed weights take so long to write that a kill can hit it."""
        import torch

        from pipedec_cli.data.records import Segmentation
        from pipedec_cli.model.checkpoint import (
            Checkpoint,
            MethodSettings,
            save_checkpoint,
        )
        from pipedec_cli.model.scratch import Shape, make_model, train_tokenizer

        torch.set_num_threads(1)  # autograd's threads do not live on in a fork
        shape = Shape(512, 3072, 4, 8, 300, 0.0, family="llama")
        tokenizer = train_tokenizer(["red", "blue"], 300, begins=True)
        model = make_model(shape, len(tokenizer))
        segmentation = Segmentation("phrase", (";",), "; ")
        settings = MethodSettings("sequential", "any", segmentation)
        made = Checkpoint(model, tokenizer, settings, "wide")
        save_checkpoint(made, self.ground / "wide")

    def environment(self, folder: Path) -> dict[str, str]:
        return {"XDG_CACHE_HOME": str(folder / "cache")}

    def packed(self, folder: Path) -> State:
        """The packed weights that would be used."""
        files = self.late(folder).glob("*.bin")
        return {path.name: path.read_bytes() for path in files}

    def state(self, folder: Path) -> State:
        written = (folder / "out.jsonl").read_bytes()
        return {"out.jsonl": without_times(written), **self.packed(folder)}

    def late(self, folder: Path) -> Path:
        """It is made just before the weights are written."""
        return folder / "cache" / "pipedec" / "packed"

    def torn(self, folder: Path, whole: State) -> int:
        packed = self.packed(folder)
        return sum(whole.get(name) != content for name, content in packed.items())


class Train(Trial):
    command = (
        "train {ground}/data --model {ground}/models/pipelined --out {folder}/model --overwrite --max-steps 12 "
        "--batch-size 2 --set limit=8 --set optimizer=adamw"
    )
    again = (("--resume",), ())

    def prepare(self, folder: Path) -> None:
        """An older model stands there, of other weights and settings."""
        run(
            [*self.arguments(folder), "--seed", "7", "--max-steps", "11"],
            folder / "older.log",
        )

    def state(self, folder: Path) -> State:
        state = super().state(folder / "model")
        told = json.loads(state["training.json"])
        told["result"]["seconds"] = 0
        named = ("config.json", "tokenizer.json")
        kept = {
            name: state[name]
            for name in state
            if name.endswith(".safetensors") or name in named
        }
        return {**kept, "training.json": json.dumps(told).encode()}

    def late(self, folder: Path) -> Path:
        return folder / "model" / "checkpoint-12" / "trainer_state.json"

    def torn(self, folder: Path, whole: State) -> int:
        """A folder that passes for a model holds the settings and the weights of one training."""
        model = folder / "model"
        if not is_model(model):
            return 0
        told = json.loads((model / "training.json").read_bytes())
        new = told["settings"]["training"]["seed"] == 0
        mixed = (
            (model / "model.safetensors").read_bytes() == whole["model.safetensors"]
        ) != new
        return mixed + sum(
            not (path / "optimizer.pt").exists() for path in checkpoints(model)
        )


class Unsaved(Train):
    """A training that saves nothing before its end, in a folder where nothing stands."""

    command = Train.command.replace("--max-steps 12", "--max-steps 1")

    def prepare(self, folder: Path) -> None:
        pass


class Taught(Train):
    """A training whose teacher writes the targets, into files that stay."""

    command = Train.command.replace(
        "--model", "-w {folder}/work --teacher {ground}/models/sequential --model"
    )


class Adapted(Train):
    command = f"{Train.command} --lora 2"


class Import(Trial):
    command = "import parallel {ground}/sources.txt --targets {ground}/targets.txt --out {folder}/out.jsonl"


class Report(Trial):
    command = "report -w {folder}/work --delays 1,2 --set timing_examples=1 --set memory=false"

    def prepare(self, folder: Path) -> None:
        shutil.copytree(self.ground, folder / "work")

    def state(self, folder: Path) -> State:
        """The predictions, and of the report the quality; times are others in every run."""
        work = folder / "work"
        made = (work / "generations").glob("*.jsonl")
        state = {path.name: without_times(path.read_bytes()) for path in made}
        told = json.loads((work / "report" / "report.json").read_bytes())
        quality = [(one["name"], one["quality"]) for one in told["entries"]]
        (work / "report" / "report.md").read_text(encoding="utf-8")
        return {**state, "report.json": json.dumps(quality, sort_keys=True).encode()}


class Segment(Trial):
    command = "segment {ground}/data.jsonl --level sentence -w {folder}"

    def prepare(self, folder: Path) -> None:
        """Data that were split otherwise stand there."""
        run([*self.arguments(folder), "--set", "held_out=0.3"], folder / "older.log")
        (folder / "older.log").unlink()

    def torn(self, folder: Path, whole: State) -> int:
        """Where segmentation.json says that the data are whole, they are of one run, the older or this one."""
        data = folder / "data"
        if not (data / "segmentation.json").exists():
            return 0
        records = [
            list(read_split(data / f"{name}.jsonl"))
            for name in ("train", "dev", "test")
        ]
        now = {
            name: (data / Path(name).name).read_bytes() == content
            for name, content in whole.items()
        }
        mixed = any(now[name] for name in now if "sentences" not in name) and not all(
            now.values()
        )
        return int(mixed or sum(map(len, records)) != EXAMPLES)


TRIALS: Final = {
    "generate": Generate,
    "train": Train,
    "train-unsaved": Unsaved,
    "train-teacher": Taught,
    "train-lora": Adapted,
    "generate-pack": Pack,
    "import": Import,
    "report": Report,
    "segment": Segment,
}
EXAMPLES: Final = 400


def run(
    words: Sequence[str],
    log: Path,
    after: float | None = None,
    there: Path | None = None,
    environment: dict[str, str] | None = None,
) -> int | None:
    """The exit code of a command in a fork of this process, with these variables; None if it was killed.

    It is killed after so many seconds, counted from when it began or from when a file
    is there.
    """

    def work() -> None:
        with log.open("ab") as file:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
        os.environ.update(environment or {})
        sys.argv = ["pipedec", *words]
        try:
            main()
        finally:  # a process waits for its threads, but not one that ends by os._exit
            store.settle()

    child = forked(work)
    if after is not None:
        while there and not there.exists():
            if os.waitpid(child, os.WNOHANG)[0]:
                return 0
            time.sleep(0.001)
        time.sleep(after)
        os.kill(
            child, signal.SIGKILL
        )  # there until it is waited for, even if it has ended
    status = os.waitpid(child, 0)[1]
    return None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def forked(work: Callable[[], None]) -> int:
    """The number of a fork of this process, which does the work and ends with its exit code, or 70."""
    child = os.fork()
    if child == 0:
        code: Any = 70
        with contextlib.suppress(BaseException):
            try:
                work()
                code = 0
            except SystemExit as end:
                code = end.code or 0
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return child


def compare(found: State, whole: State) -> Counter[str]:
    """What was lost, doubled or otherwise than in an undisturbed run."""
    counts: Counter[str] = Counter()
    for name in whole.keys() | found.keys():
        if found.get(name) != whole.get(name):
            counts["unequal"] += 1
            sys.stderr.write(f"{name} is otherwise\n")
        if name.endswith(".jsonl"):
            rows = (
                map(json.loads, state.get(name, b"").splitlines())
                for state in (whole, found)
            )
            old, new = (Counter(str(row["id"]) for row in one) for one in rows)
            counts["lost"] += len(old.keys() - new.keys())
            counts["doubled"] += sum(count > 1 for count in new.values())
    return counts


def tried(trial: Trial, each: int, rng: random.Random, scratch: Path) -> Counter[str]:
    """Kill a command so often; a run that had ended before its moment came is drawn again."""
    start, log = scratch / "start", scratch / "log"
    start.mkdir()
    trial.prepare(start)

    def fresh() -> tuple[Path, list[str]]:
        folder = scratch / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(start, folder)
        return folder, trial.arguments(folder)

    folder, arguments = fresh()
    environment = trial.environment(folder)
    began = time.monotonic()
    if run(arguments, log, environment=environment) != 0:
        raise SystemExit(
            f"the undisturbed run failed: {log.read_text(encoding='utf-8')[-2000:]}"
        )
    takes, whole, counts = time.monotonic() - began, trial.state(folder), Counter[str]()
    while counts["kills"] < each:
        folder, arguments = fresh()
        is_late = (counts["kills"] + 1) % trial.late_each == 0
        late = trial.late(folder) if is_late else None
        moment = rng.uniform(0, 0.03 if late else takes)
        if run(arguments, log, moment, late, environment) is not None:
            takes *= 0.95  # a quieter machine than before
            continue
        counts["kills"] += 1
        counts["torn"] += trial.torn(folder, whole)
        for more in trial.again:
            kept = [
                word
                for word in arguments
                if word != "--overwrite" or "--resume" not in more
            ]
            code = run([*kept, *more], log, environment=environment)
            if code != 2:
                break
        if code:
            counts["failed"] += 1
            sys.stderr.write(
                f"{type(trial).__name__}: {log.read_text(encoding='utf-8')[-1000:]}\n"
            )
        else:
            counts += compare(trial.state(folder), whole)
        left = [*folder.rglob(".*")]  # locks, and what was half written
        counts["left over"] += len(left)
        if left:
            sys.stderr.write(f"left over: {', '.join(map(str, left))}\n")
    return counts


def prepare(ground: Path) -> None:
    """Data, and two models that are tiny: what is tried is the writing."""
    write_json_lines(ground / "data.jsonl", made := make_demo(EXAMPLES, 0))
    for name in ("source", "target"):
        (ground / f"{name}s.txt").write_text(
            "".join(f"{one[name]}\n" for one in made), encoding="utf-8"
        )
    if run(
        f"segment {ground}/data.jsonl --level sentence -w {ground}".split(),
        ground / "log",
    ):
        raise SystemExit((ground / "log").read_text(encoding="utf-8"))

    def models() -> None:
        from tests.checkpoints import tiny_checkpoint

        for decoder in ("pipelined", "sequential"):
            tiny_checkpoint(
                ground / "models" / decoder, decoder=decoder, level="sentence"
            )

    # Autograd's threads do not live on in a fork: they must not be started here
    if os.waitpid(forked(models), 0)[1]:
        raise SystemExit("the models could not be made")


def row(*cells: object) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(map(str, cells))} |"


def start() -> None:
    """Kill what is asked for, print the table, and end with 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=50, help="kills of each command")
    parser.add_argument(
        "--only", choices=[*TRIALS], action="append", help="these commands"
    )
    given = parser.parse_args()
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TOKENIZERS_PARALLELISM": "false",
    }
    for name in HEAVY.split():
        importlib.import_module(name)

    store.FEWEST_BYTES = 1 << 24  # so that the model of `Pack` need not be large
    faults = 0
    print(
        row("command", *COLUMNS),
        row(*["---"] * (len(COLUMNS) + 1)),
        sep="\n",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as scratch:
        prepare(Path(scratch, "ground"))
        for name in given.only or TRIALS:
            place = Path(scratch, name)
            place.mkdir()
            trial = TRIALS[name](Path(scratch, "ground"))
            counts = tried(trial, given.each, random.Random(name), place)
            faults += counts.total() - counts["kills"]
            print(row(name, *(counts[column] for column in COLUMNS)), flush=True)
    sys.exit(faults > 0)


if __name__ == "__main__":
    start()
