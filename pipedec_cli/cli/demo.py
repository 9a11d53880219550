"""`pipedec demo`: the whole workflow on data that the package makes, by the functions of the other commands."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pipedec_cli.cli.report import report
from pipedec_cli.cli.segment import segment
from pipedec_cli.cli.train import describe
from pipedec_cli.data.demo import check_facts, make_demo
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import read_predictions
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

EXAMPLES = """
pipedec demo                                      # some three minutes on two cores, no network
pipedec demo --updates 3000 --out longer-demo     # better texts
"""

DELAY: Final = 2
#: Stands in the demo's folder, so that a later demo knows it for its own.
MARK: Final = "made-by-pipedec-demo"


@dataclass(frozen=True, kw_only=True)
class DemoSettings(Settings):
    """How large the demo is; the defaults take some three minutes on two quiet cores."""

    examples: int = 6000  # examples that are made
    updates: int = option(
        600,
        "Training updates of 8 examples for the sequential model. The pipelined model gets two thirds. With fewer than 120, texts do not end.",
        min=1,
    )
    test: int = 100  # test examples that are generated from
    seed: int = 0  # of data and training
    out: Path = option(Path("pipedec-demo"), "The folder to work in; an earlier demo there is replaced.")
    quiet: bool = False


def demo(settings: DemoSettings) -> None:
    """Run the whole workflow on built-in data: segment, train, generate, report.

    The data are facts about made-up ships, birds, planets and stations, each of which the target states in a sentence of its
    own, so that what is right can be counted. A small sequential model is trained from scratch, and then taught to a pipelined
    decoder, which is compared with it.
    """
    terminal = Terminal(quiet=settings.quiet)
    try:
        _demo(settings, terminal)
    except KeyboardInterrupt:
        terminal.notify.warn("the demo itself starts over when it is run again")
        raise


def _demo(settings: DemoSettings, terminal: Terminal) -> None:
    out, shown, quiet, notify = settings.out, quoted(str(settings.out)), settings.quiet, terminal.notify
    _clear(out)
    data = out / "data.jsonl"
    write_json_lines(data, make_demo(settings.examples, settings.seed))

    notify.say(
        f"\n1 of 5: cut the targets into sentences   (pipedec segment {quoted(str(data))} --level sentence -w {shown})"
    )
    segment(SegmentSettings(data=str(data), seed=settings.seed, workspace=out, quiet=quiet))
    place = Workspace(out)
    plain = place.model("sequential")
    size = TrainSettings(batch_size=8, dev_examples=48, evaluations=3, keep_checkpoints=0, overwrite=True)
    usual = replace(size, max_steps=settings.updates, seed=settings.seed, workspace=out)
    notify.say(f"\n2 of 5: train a sequential model   (pipedec train --decoder sequential -w {shown})")
    describe(train.run(replace(usual, decoder="sequential"), notify), terminal)
    command = f"pipedec train --teacher {quoted(str(plain))} -w {shown}"
    notify.say(f"\n3 of 5: teach it to a pipelined decoder   ({command})")
    fewer = max(1, settings.updates * 2 // 3)  # it starts where that model has come to
    describe(train.run(replace(usual, teacher=str(plain), max_steps=fewer), notify), terminal)
    notify.say(
        f"\n4 of 5: watch one being generated   (pipedec generate --delay {DELAY} --live --limit 1 -w {shown})"
    )
    generate.generate(GenerateSettings(delay=DELAY, limit=1, batch_size=1, live=True, workspace=out), notify)
    notify.say(f"\n5 of 5: compare   (pipedec report --compare sequential --delays 1,2,3 -w {shown})")
    compared = ReportSettings(delays=(1, DELAY, 3), limit=settings.test, timing_examples=16, memory=False)
    report(replace(compared, batch_size=8, workspace=out, quiet=quiet))

    notify.say("")
    counts, rules = {}, "-stop-norepeat"
    for name in (*(f"pipelined-delay{delay}{rules}" for delay in compared.delays or ()), "sequential"):
        count = Counter(right=0, wrong=0, missing=0)
        for made in read_predictions(place.generations(f"{name}-first{settings.test}")):
            if made.record is not None:
                count.update(check_facts(made.text, made.record.source))
        counts[name.removesuffix(rules)] = dict(count)
        stated = count["right"] + count["missing"]
        if stated:
            share = f"{count['right']:,} of {stated:,} facts right ({100 * count['right'] / stated:.1f} %)"
            called = name.removesuffix(rules).replace("pipelined-delay", "Δt = ")
            notify.say(f"{called}: {share}, {count['wrong']:,} wrong sentences")
    write_json(place.report / "facts.json", counts)
    notify.say(
        f"\nAll of it is in {out}. On your own data, a data.jsonl of objects with `source` and `target`:\n"
        "  pipedec segment data.jsonl --level sentence\n"
        "  pipedec train --decoder sequential    # or take your own model\n"
        "  pipedec train --teacher pipedec-workspace/models/sequential\n"
        f"  pipedec generate --delay {DELAY} --live\n"
        "  pipedec report --compare sequential --delays 1,2,3\n"
        "Where a `target` is an object, the keys and values that a text is to be turned into, begin with\n"
        "  pipedec segment data.jsonl --level field\n"
        "docs/real-model.md does this with a real model in ten minutes."
    )


def _clear(out: Path) -> None:
    """Remove an earlier demo, and nothing else."""
    if out.exists():
        if not (out / MARK).exists():
            raise UserError(f"{out} is there and no demo made it", todo="give another folder with --out")
        shutil.rmtree(out)
    out.mkdir(parents=True)
    (out / MARK).touch()
