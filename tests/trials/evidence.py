"""A table of what rows without training answer on public data sets, with and without examples.

    python -m tests.trials.evidence MODEL.gguf DATA OUT --sets sroie,e2e_fields --shots 0,2,4 [--code FOLDER]
    python -m tests.trials.evidence MODEL.gguf DATA OUT --ordinary PYTHON     # the ordinary way, by tests.trials.ordinary

DATA has a folder for each set, with train.jsonl (or .jsonl.gz) and dev.jsonl. The keys
of a set are those that enough of its first training records have; other keys are left
out of all targets. The examples are the first training records. Without examples both
the chat template and none are tried, and the better is shown. `--code` is a folder with
another version of the package. What OUT holds already is not made again.

Seconds are those of the processor in one thread, the start of the program among them:
others may use the machine meanwhile.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import mean
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SETS = ("sroie", "snips", "conll04", "ae110k", "oa_mine", "e2e_fields")
#: Keys whose values are choices, by set: all that the training records have.
CHOICES = {"snips": ("intent",)}
#: The keys are read off so many training records.
LOOKED_AT = 300
PIPEDEC = (sys.executable, "-m", "pipedec_cli")


class Run(NamedTuple):
    """A set with a number of examples, and whether the prompt is a chat; `name` is that of its files."""

    data: str
    shots: int
    chat: bool

    @property
    def name(self) -> str:
        """The beginning of its files' names."""
        return f"{self.data}-{self.shots}" + "-chat" * self.chat


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file of JSON lines, which may be compressed."""
    packed = path.with_name(path.name + ".gz")
    if packed.exists():
        with gzip.open(packed, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)
    else:
        with path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def values_of(records: Sequence[dict[str, Any]], key: str) -> list[Any]:
    """The values that the records have for a key."""
    targets = [record["target"] for record in records]
    return [target[key] for target in targets if key in target]


def schema_of(
    records: Sequence[dict[str, Any]], share: float, choices: Sequence[str]
) -> dict[str, Any]:
    """The schema of the keys that at least the share of the first records have, in the order in which they come."""
    first = records[:LOOKED_AT]
    properties: dict[str, Any] = {}
    for record in first:
        for key, value in record["target"].items():
            if key in properties or len(values_of(first, key)) < share * len(first):
                continue
            if key in choices:
                properties[key] = {"enum": sorted(set(values_of(records, key)))}
            elif isinstance(value, list):
                properties[key] = {"type": "array", "items": {"type": "string"}}
            else:
                properties[key] = {"type": "string"}
    return {"type": "object", "properties": properties}


def write_lines(
    path: Path, records: Sequence[dict[str, Any]], keys: Sequence[str]
) -> None:
    """Write records whose targets have these keys alone."""
    with path.open("w", encoding="utf-8") as file:
        for number, record in enumerate(records, start=1):
            target = {
                key: value for key, value in record["target"].items() if key in keys
            }
            line = {
                "id": str(record.get("id", number)),
                "source": record["source"],
                "target": target,
            }
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def prepare(asked: argparse.Namespace, name: str) -> None:
    """Write the schema, the texts and the examples of a set."""
    folder = asked.data / name
    training = [*read(folder / "train.jsonl")]
    schema = schema_of(training, asked.share, CHOICES.get(name, ()))
    (asked.out / f"{name}.schema.json").write_text(
        json.dumps(schema, indent=1), encoding="utf-8"
    )
    keys = [*schema["properties"]]
    texts = [*islice(read(folder / "dev.jsonl"), asked.limit)]
    write_lines(asked.out / f"{name}.dev.jsonl", texts, keys)
    for count in filter(None, asked.shots):
        write_lines(asked.out / f"{name}.first{count}.jsonl", training[:count], keys)


def options_of(asked: argparse.Namespace, run: Run) -> list[str]:
    """The options that both ways have."""
    options = ["--schema", str(asked.out / f"{run.data}.schema.json")]
    if run.shots:
        options += [
            "--shots",
            f"{asked.out / run.data}.first{run.shots}.jsonl:{run.shots}",
        ]
    elif not run.chat:
        options.append("--no-chat")
    return options


def command_of(asked: argparse.Namespace, run: Run, made: Path) -> list[str]:
    """The command that writes the predictions."""
    texts = str(asked.out / f"{run.data}.dev.jsonl")
    if asked.ordinary:
        command = [asked.ordinary, "-m", "tests.trials.ordinary"]
        command += [asked.model, texts, str(made)]
    else:
        command = [*PIPEDEC, "generate", texts]
        command += ["--model", asked.model]
        command += ["--out", str(made)]
        command += ["--dtype", asked.dtype]
        command += ["--set", "threads=1"]
    return [*command, *options_of(asked, run), *asked.more]


def call(command: Sequence[str], code: Path, log: Path) -> str:
    """The standard output of a command that runs with the package in a folder. The rest of what it says goes into a file."""
    environment = os.environ | {"PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"}
    with log.open("a", encoding="utf-8") as file:
        print(*command, file=file, flush=True)
        done = subprocess.run(
            command,
            check=False,
            cwd=code,
            env=environment,
            stderr=file,
            stdout=subprocess.PIPE,
            text=True,
        )
    if done.returncode:
        raise SystemExit(f"{log}: exit code {done.returncode}")
    return done.stdout


def scores_of(made: Path, log: Path) -> dict[str, Any]:
    """What `pipedec score` says of predictions, always by the package that this trial belongs to."""
    command = [*PIPEDEC, "score", str(made)]
    command += ["--task", "fields"]
    command += ["--out", str(made.with_suffix(".scores.json"))]
    command.append("--json")
    return json.loads(call(command, ROOT, log))


def child_seconds() -> float:
    """The processor time of all commands that have ended."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def figures(asked: argparse.Namespace, run: Run) -> dict[str, Any]:
    """The figures of a run, which is made if its file of figures is not there."""
    stem = asked.out / run.name
    kept = Path(f"{stem}.figures.json")
    if kept.exists():
        return json.loads(kept.read_text(encoding="utf-8"))
    made = Path(f"{stem}.jsonl")
    log = Path(f"{stem}.log")
    began = child_seconds()
    call(command_of(asked, run, made), asked.code, log)
    seconds = child_seconds() - began
    scores = scores_of(made, log)
    values = scores["values"]
    parts = scores["parts"].items()
    steps = [line["steps"] for line in read(made)]
    result = {
        "f1": values["fields_f1"],
        "right": values["fields_exact"],
        "keys": {key: part["fields_f1"] for key, part in parts},
        "calls": mean(steps),
        "seconds": seconds / len(steps),
    }
    kept.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return result


def row(asked: argparse.Namespace, name: str, shots: int) -> str:
    """The row of a set with a number of examples."""
    if shots:
        how = str(shots)
        result = figures(asked, Run(name, shots, chat=False))
    else:
        how = "0, chat"
        result = figures(asked, Run(name, 0, chat=True))
        plain = figures(asked, Run(name, 0, chat=False))
        if plain["f1"] > result["f1"]:
            how = "0, no chat"
            result = plain
    form = "| {name} | {how} | {f1:.1f} | {right:.1f} % | {calls:.1f} | {seconds:.2f} | {parts} |"
    parts = ", ".join(f"{key} {value:.1f}" for key, value in result["keys"].items())
    return form.format(name=name, how=how, parts=parts, **result)


def main() -> None:
    """Print the table, a row as soon as it is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("model")
    add("data", type=Path)
    add("out", type=Path)
    add("--sets", default=",".join(SETS))
    add("--shots", default="0,2,4")
    add("--limit", type=int, default=100)
    add(
        "--share",
        type=float,
        default=0.05,
        help="the least share of records that have a key",
    )
    add("--dtype", default="bfloat16")
    add("--code", type=Path, default=ROOT)
    add("--ordinary", metavar="PYTHON", help="an interpreter that has llama-cpp-python")
    add("more", nargs="*", help="behind --, options of each command")
    asked = parser.parse_args()
    asked.model = str(Path(asked.model).resolve())
    asked.out = asked.out.resolve()
    asked.out.mkdir(parents=True, exist_ok=True)
    asked.shots = [int(count) for count in asked.shots.split(",")]
    print(
        "| set | examples | F1 | objects right | calls a text | processor s a text | F1 by key |",
        flush=True,
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in asked.sets.split(","):
        prepare(asked, name)
        for count in asked.shots:
            print(row(asked, name, count), flush=True)


if __name__ == "__main__":
    main()
