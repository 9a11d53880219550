"""`pipedec demo`: the whole workflow on data that the package makes, by the functions of the other commands."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from pipedec_cli.data.demo import check_facts, make_demo
from pipedec_cli.data.errors import UserError, duration, log, many
from pipedec_cli.data.reading import require_writable
from pipedec_cli.data.trained import checkpoints, forget
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.data.writing import write_json, write_json_lines
from pipedec_cli.jobs import generate, train
from pipedec_cli.jobs.command_lines import quoted
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.report_settings import ReportSettings
from pipedec_cli.jobs.segment import Segmented, SegmentSettings, segment
from pipedec_cli.jobs.settings import Settings, option
from pipedec_cli.jobs.train_settings import TrainSettings
from pipedec_cli.view.console import make_console
from pipedec_cli.view.progress import Terminal
from pipedec_cli.view.segment_tables import segment_sheets
from pipedec_cli.view.tables import show_sheet

if TYPE_CHECKING:
    from pipedec_cli.compare.comparison import Report
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
#: What a user may do next; the README names the same.
NEXT: Final = """\
report/report.html replays every text. Next:
* Prose from your own model, inputs.jsonl with a `source` a line:
  pipedec segment inputs.jsonl --sources-only && pipedec train --teacher ./my-model
* Prose from your own data, data.jsonl with a `source` and a `target` a line:
  pipedec segment data.jsonl --level sentence && pipedec train
* JSON without training, from an ordinary decoder-only model:
  pipedec generate --model Qwen/Qwen3-0.6B --fields "name, age int" --text "…"
* JSON with training, data.jsonl with an object as the `target` of each line:
  pipedec segment data.jsonl --level field && pipedec train --model Qwen/Qwen3-0.6B"""


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


@dataclass
class _Steps:
    """Announces each step, with the time that is left."""

    quiet: bool
    begun: float
    number: int = 0

    def next(self, title: str, command: str) -> Terminal:
        """Say which step begins, and with which command a user does the same. Returns what shows the step."""
        terminal = Terminal(quiet=self.quiet)
        done = sum(SECONDS[: self.number])
        left = sum(SECONDS[self.number :])
        # 10: the first, short steps say little.
        slower = (monotonic() - self.begun + 10) / (done + 10)
        self.number += 1
        remaining = f"{self.number} of 5, about {duration(left * slower)} left"
        log.info(f"\n{remaining}: {title}   (pipedec {command})")
        return terminal


def _demo(settings: DemoSettings) -> None:
    """Run the steps of the demo, one after the other, in its folder, and say what is there and what may come next."""
    _make_folder(settings.out)
    steps = _Steps(settings.quiet, monotonic())
    _watch(settings, steps)
    _segment(settings, steps)
    _train(settings, steps)
    report = _compare(settings, steps)
    log.info("")
    _count_facts(report, Workspace(settings.out).report / "facts.json")
    log.info(f"\nAll of it is in {settings.out}; {NEXT}")


def _make_folder(out: Path) -> None:
    """An empty folder; an earlier demo there is removed."""
    require_writable(out)
    if out.exists():
        if not (out / MARK).exists():
            what = f"{out} is there and no demo made it"
            raise UserError(what, todo="give another folder with --out")
        shutil.rmtree(out)
    out.mkdir(parents=True)
    (out / MARK).touch()


def _watch(settings: DemoSettings, steps: _Steps) -> None:
    """Show how the model that ships with the package writes a text."""
    source = make_demo(1, settings.seed + 1)[0]["source"]
    model = quoted(str(SHIPPED))
    text = quoted(source)
    listen = steps.next(
        "watch a model that comes with pipedec",
        f"generate --model {model} --delay {DELAY} --live --text {text}",
    )
    watched = GenerateSettings(
        model=str(SHIPPED),
        delay=DELAY,
        live=True,
        text=(source,),
        workspace=settings.out,
    )
    generate.generate(watched, listen, lambda *_: None)


def _segment(settings: DemoSettings, steps: _Steps) -> None:
    """Make the data, cut their targets, and show what they are like."""
    data = settings.out / "data.jsonl"
    listen = steps.next(
        "cut the targets into sentences",
        f"segment {quoted(str(data))} --level sentence -w {quoted(str(settings.out))}",
    )
    write_json_lines(data, make_demo(settings.examples, settings.seed))
    segmented = segment(SegmentSettings(data=str(data), workspace=settings.out), listen)
    if not settings.quiet:
        show_segmented(segmented, listen)


def show_segmented(segmented: Segmented, terminal: Terminal) -> None:
    """Show what segmented data are like: the lengths of the targets, the decoder steps that they take, and the keys."""
    for sheet in segment_sheets(
        segmented.statistics,
        segmented.estimates,
        segmented.unit,
        segmented.segmentation.fields,
    ):
        show_sheet(terminal.talk.console, sheet)


def _train(settings: DemoSettings, steps: _Steps) -> None:
    """Train a sequential model, and a pipelined decoder that learns from it."""
    shown = quoted(str(settings.out))
    usual = TrainSettings(
        batch_size=16,
        keep="last",
        seed=settings.seed,
        workspace=settings.out,
        overwrite=True,
        max_steps=settings.updates,
    )
    listen = steps.next(
        "train a sequential model",
        f"train --model scratch-demo --decoder sequential -w {shown}",
    )
    trained = train.run(
        replace(usual, model="scratch-demo", decoder="sequential"), listen
    )
    forget(checkpoints(trained.target))
    teacher = str(trained.target)
    listen = steps.next(
        "teach it to a pipelined decoder",
        f"train --teacher {quoted(teacher)} -w {shown}",
    )
    updates = max(1, settings.updates * 3 // 4)
    trained = train.run(replace(usual, max_steps=updates, teacher=teacher), listen)
    forget(checkpoints(trained.target))


def _compare(settings: DemoSettings, steps: _Steps) -> Report:
    """Compare the two models, and show the report."""
    # Late, so that `pipedec --help` does not wait for numpy.
    from pipedec_cli.jobs.report import report
    from pipedec_cli.view.results import show_report

    listen = steps.next(
        "compare them",
        f"report --compare sequential --delays 1,2,3 -w {quoted(str(settings.out))}",
    )
    chosen = ReportSettings(
        delays=(1, DELAY, 3),
        limit=settings.test,
        timing_examples=16,
        memory=False,
        batch_size=8,
        workspace=settings.out,
    )
    compared = report(chosen, listen)
    show_report(make_console(stderr=False), compared.report)
    return compared.report


def _count_facts(report: Report, path: Path) -> None:
    """Say, and save in the file `path`, how many facts of the sources each decoder states."""
    counts = {}
    baseline, *pipelined = report.entries
    for entry in (*pipelined, baseline):
        count = _facts(entry)
        name = "sequential" if entry is baseline else f"pipelined-delay{entry.delay}"
        counts[name] = dict(count)
        stated = count["right"] + count["missing"]
        if stated:
            per_cent = f"{100 * count['right'] / stated:.1f} %"
            right = f"{count['right']:,} of {stated:,} facts right ({per_cent})"
            log.info(f"{entry.name}: {right}, {many(count['wrong'], 'wrong sentence')}")
    write_json(path, counts)


def _facts(entry: Entry) -> Counter[str]:
    """How many facts of the sources a decoder's texts state, leave out, or make up."""
    count = Counter(right=0, wrong=0, missing=0)  # see `check_facts`
    scored = entry.quality.scored
    if scored is None:
        return count
    for prediction in scored.run.predictions:
        if prediction.record is not None:
            count.update(check_facts(prediction.text, prediction.record.source))
    return count
