"""`pipedec demo`: the whole workflow on data that the package makes, by the functions of the other commands."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from pipedec_cli.cli.report import show_report
from pipedec_cli.cli.segment import segment
from pipedec_cli.cli.train import describe
from pipedec_cli.data.demo import check_facts, make_demo
from pipedec_cli.data.errors import UserError, duration, log, many
from pipedec_cli.data.reading import require_writable
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.data.writing import write_json, write_json_lines
from pipedec_cli.jobs import generate, train
from pipedec_cli.jobs.commands import quoted
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.report_settings import ReportSettings
from pipedec_cli.jobs.segment import SegmentSettings
from pipedec_cli.jobs.settings import Settings, option
from pipedec_cli.jobs.train_settings import TrainSettings
from pipedec_cli.view.progress import Terminal

if TYPE_CHECKING:
    from pipedec_cli.compare.entry import Entry

EXAMPLES = """
pipedec demo                                      # one to two minutes on two cores, no network
pipedec demo --out another-demo
"""

DELAY: Final = 2
#: A pipelined model that ships with the package; step 4 makes such a folder again.
SHIPPED: Final = Path(__file__).parents[1] / "data" / "demo_model"
#: What each step takes of the time, in seconds on two cores.
SECONDS: Final = (3, 5, 22, 25, 12)
#: Stands in the demo's folder, so that a later demo knows it for its own.
MARK: Final = "made-by-pipedec-demo"


@dataclass(frozen=True, kw_only=True)
class DemoSettings(Settings):
    """How large the demo is; the defaults take one to two minutes on two quiet cores."""

    examples: int = 2000  # examples that are made
    updates: int = 240  # of 16 examples, of the sequential model; the pipelined model gets three quarters
    test: int = 100  # test examples that are generated from
    seed: int = 0  # of data and training
    out: Path = option(
        Path("pipedec-demo"),
        "The folder to work in; an earlier demo there is replaced.",
    )
    threads: int | None = None
    quiet: bool = False


def demo(settings: DemoSettings) -> None:
    """Run the whole workflow on built-in data: generate, segment, train, teach, report.

    The data are facts about made-up ships, birds, planets and stations, each of which
    the target states in a sentence of its own, so that what is right can be counted.
    The first grid is written by a model that comes with pipedec. The next steps make
    such a model: a small sequential model is trained from scratch, taught to a
    pipelined decoder, and compared with it.
    """
    try:
        _demo(settings)
    except KeyboardInterrupt:
        log.warning("the demo itself starts over when it is run again")
        raise


def _demo(settings: DemoSettings) -> None:
    out, shown, quiet = settings.out, quoted(str(settings.out)), settings.quiet
    require_writable(out)
    if out.exists():
        if not (out / MARK).exists():
            raise UserError(
                f"{out} is there and no demo made it",
                todo="give another folder with --out",
            )
        shutil.rmtree(out)
    out.mkdir(parents=True)
    (out / MARK).touch()
    place, data, begun = Workspace(out), out / "data.jsonl", monotonic()

    def step(number: int, title: str, command: str) -> Terminal:
        terminal = Terminal(quiet=quiet)
        done, left = sum(SECONDS[: number - 1]), sum(SECONDS[number - 1 :])
        slower = (monotonic() - begun + 10) / (
            done + 10
        )  # 10: the first, short steps say little
        log.info(
            f"\n{number} of 5, about {duration(left * slower)} left: {title}   (pipedec {command})"
        )
        return terminal

    source = make_demo(1, settings.seed + 1)[0]["source"]
    command = f"generate --model {quoted(str(SHIPPED))} --delay {DELAY} --live --text {quoted(source)}"
    listen = step(1, "watch a model that comes with pipedec", command)
    watched = GenerateSettings(
        model=str(SHIPPED), delay=DELAY, live=True, text=(source,), workspace=out
    )
    generate.generate(watched, listen, lambda *_: None)

    step(
        2,
        "cut the targets into sentences",
        f"segment {quoted(str(data))} --level sentence -w {shown}",
    )
    write_json_lines(data, make_demo(settings.examples, settings.seed))
    segment(
        SegmentSettings(data=str(data), seed=settings.seed, workspace=out, quiet=quiet)
    )
    usual = TrainSettings(
        batch_size=16, dev_examples=48, evaluations=4, keep="last", keep_checkpoints=0
    )
    usual = replace(usual, seed=settings.seed, workspace=out, overwrite=True)
    command = f"train --model scratch-demo --decoder sequential -w {shown}"
    listen = step(3, "train a sequential model", command)
    usual = replace(usual, max_steps=settings.updates)
    describe(
        train.run(replace(usual, model="scratch-demo", decoder="sequential"), listen)
    )
    teacher = str(place.model("sequential"))
    listen = step(
        4,
        "teach it to a pipelined decoder",
        f"train --teacher {quoted(teacher)} -w {shown}",
    )
    usual = replace(usual, max_steps=max(1, settings.updates * 3 // 4))
    describe(train.run(replace(usual, teacher=teacher), listen))
    step(5, "compare them", f"report --compare sequential --delays 1,2,3 -w {shown}")
    compared = ReportSettings(
        delays=(1, DELAY, 3), limit=settings.test, timing_examples=16, memory=False
    )
    made = show_report(
        replace(compared, batch_size=8, workspace=out, quiet=quiet)
    ).report

    log.info("")
    counts = {}
    baseline, *pipelined = made.entries
    for entry in (*pipelined, baseline):
        count = _facts(entry)
        name = "sequential" if entry is baseline else f"pipelined-delay{entry.delay}"
        counts[name] = dict(count)
        stated = count["right"] + count["missing"]
        if stated:
            share = f"{count['right']:,} of {stated:,} facts right ({100 * count['right'] / stated:.1f} %)"
            log.info(f"{entry.name}: {share}, {many(count['wrong'], 'wrong sentence')}")
    write_json(place.report / "facts.json", counts)
    log.info(
        f"\nAll of it is in {out}; report/report.html replays every text. Next:\n"
        "* Prose from your own model, inputs.jsonl with a `source` a line:\n"
        "  pipedec segment inputs.jsonl --sources-only && pipedec train --teacher ./my-model\n"
        "* JSON without training, from an ordinary decoder-only model:\n"
        '  pipedec generate --model Qwen/Qwen3-0.6B --fields "name, age int" --text "…"\n'
        "* JSON with training, data.jsonl with a `source` and an object as its `target` a line:\n"
        "  pipedec segment data.jsonl --level field && pipedec train --model Qwen/Qwen3-0.6B"
    )


def _facts(entry: Entry) -> Counter[str]:
    """How many facts of the sources a decoder's texts state, leave out, or make up."""
    count, scored = Counter(right=0, wrong=0, missing=0), entry.quality.scored
    for prediction in scored.run.predictions if scored else ():
        if prediction.record is not None:
            count.update(check_facts(prediction.text, prediction.record.source))
    return count
