"""Ctrl-C and SIGTERM in the first second of a command: `python -m tests.trials.signals --each 100`.

Commands are started as their console script starts them, one after the other, and get
a signal at a moment drawn from the first second. Each must end with exit code 130 or
143, in seconds, without a traceback. One that has ended before its moment is drawn
again. Until Python reaches the first line of pipedec, a signal ends Python in its own
way: such ends are counted apart, with the latest moment at which one came.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from pipedec_cli.cli.commands import COMMANDS as TABLE
from pipedec_cli.data.demo import make_demo
from pipedec_cli.data.writing import write_json_lines
from tests.checkpoints import tiny_checkpoint
from tests.running import run
from tests.trials.kills import row

#: What a console script of the package does.
SCRIPT: Final = "from pipedec_cli.__main__ import main; main()"
COMMANDS: Final = {
    "generate": "generate --text a --model work/models/pipelined --max-tokens 20",
    "segment": "segment data.jsonl --level sentence --out out",
    "train": "train -w work --model work/models/pipelined --out trained --overwrite",
    "report": "report -w work --delays 1,2 --set memory=false",
    "serve": "serve --model work/models/pipelined --port 0",
}
#: Those that are there, where one was taken out of the package.
NAMES: Final = [entry.name for entry in TABLE if entry.name in COMMANDS]
SIGNALS: Final = {signal.SIGINT: 130, signal.SIGTERM: 143}
#: The most seconds from a signal to the end.
PATIENCE: Final = 10.0
COLUMNS: Final = ("signals", "as they should", "before pipedec", "wrong")


class Ended(NamedTuple):
    """How a command ended after its signal."""

    code: int
    stderr: str
    seconds: float  # from the signal to the end


def stopped(
    words: list[str], number: signal.Signals, after: float, folder: Path
) -> Ended | None:
    """Run a command and send it a signal; None if it had ended before."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(after)
    if process.poll() is not None:
        process.communicate()
        return None
    began = time.monotonic()
    process.send_signal(number)
    try:
        _, stderr = process.communicate(timeout=6 * PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        _, stderr = process.communicate()
    return Ended(process.returncode, stderr, time.monotonic() - began)


def is_early(ended: Ended, number: signal.Signals) -> bool:
    """Whether the signal came before the first line of pipedec could heed it."""
    if ended.code == -number and not ended.stderr:
        return True
    # Python's own handler of Ctrl-C has shown where it was.
    places = [line for line in ended.stderr.splitlines() if "pipedec_cli/" in line]
    own = ("pipedec_cli/__init__.py", "pipedec_cli/__main__.py")
    return "KeyboardInterrupt" in ended.stderr and all(
        any(name in place for name in own) for place in places
    )


def wrong_with(ended: Ended, number: signal.Signals) -> list[str]:
    """What is not as it should be."""
    wrong = []
    if ended.code != SIGNALS[number]:
        wrong.append(f"exit code {ended.code}")
    if "Traceback" in ended.stderr or "Exception ignored" in ended.stderr:
        wrong.append("a traceback")
    if ended.seconds > PATIENCE:
        wrong.append(f"an end after {ended.seconds:.0f} s")
    return wrong


def prepare(folder: Path) -> None:
    """Data, and two models that are tiny."""
    write_json_lines(folder / "data.jsonl", make_demo(400, 0))
    work = folder / "work"
    run("segment", folder / "data.jsonl", "--level", "sentence", "-w", work)
    for decoder in ("pipelined", "sequential"):
        tiny_checkpoint(work / "models" / decoder, decoder=decoder, level="sentence")


def _script() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=100, help="of each signal")
    parser.add_argument("--seconds", type=float, default=1.0, help="the last moment")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    # A command in the background, as a shell starts it, would ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    chance = random.Random(asked.seed)
    counts = {name: Counter[str]() for name in NAMES}
    early = []
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        prepare(folder)
        for number in SIGNALS:
            for place in range(asked.each):
                name = NAMES[place % len(NAMES)]
                ended = None
                while ended is None:
                    after = chance.uniform(0, asked.seconds)
                    ended = stopped(COMMANDS[name].split(), number, after, folder)
                counts[name]["signals"] += 1
                wrong = wrong_with(ended, number)
                if not wrong:
                    counts[name]["as they should"] += 1
                elif is_early(ended, number):
                    counts[name]["before pipedec"] += 1
                    early.append(after)
                else:
                    counts[name]["wrong"] += 1
                    told = f"{number.name} after {after:.3f} s: {', '.join(wrong)}"
                    sys.stderr.write(f"{name}, {told}\n{ended.stderr[-2000:]}\n")
    print(row("command", *COLUMNS), row(*["---"] * (len(COLUMNS) + 1)), sep="\n")
    for name, count in counts.items():
        print(row(name, *(count[column] for column in COLUMNS)))
    print(f"the latest before pipedec: {max(early, default=0):.3f} s")
    return any(count["wrong"] for count in counts.values())


if __name__ == "__main__":
    sys.exit(_script())
