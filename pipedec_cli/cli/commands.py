"""The commands: what each is called, its settings, the job that it runs and what is shown of it.

The docstring of a command's function is its help text, written for users. Each takes the
settings, and what the command line itself was asked for. What takes long to import, such as numpy, is imported where a
command runs, so that `pipedec --help` does not wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins
from rich.console import Console

from pipedec_cli.cli import demo
from pipedec_cli.cli.options import Command, Invocation
from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.trained import is_model
from pipedec_cli.data.writing import to_json
from pipedec_cli.jobs import generate as generate_job
from pipedec_cli.jobs import import_ as import_job
from pipedec_cli.jobs import score as score_job
from pipedec_cli.jobs import segment as segment_job
from pipedec_cli.jobs import shard as shard_job
from pipedec_cli.jobs import train as train_job
from pipedec_cli.jobs.command_lines import command_line
from pipedec_cli.jobs.generate_settings import GenerateSettings, MergeSettings
from pipedec_cli.jobs.import_ import ImportSettings
from pipedec_cli.jobs.report_settings import BenchSettings, ReportSettings
from pipedec_cli.jobs.score import ScoreSettings
from pipedec_cli.jobs.segment import SegmentSettings
from pipedec_cli.jobs.settings import Settings
from pipedec_cli.jobs.train_settings import TrainSettings
from pipedec_cli.training.hyperparameters import is_main
from pipedec_cli.view.console import make_console, visible, write_stdout
from pipedec_cli.view.progress import Terminal
from pipedec_cli.view.segment_tables import import_sheet
from pipedec_cli.view.tables import show_sheet

if TYPE_CHECKING:
    from pipedec_cli.data.records import Generated

SHARD_HELP: Final = (
    "Merge the parts that `generate --part` or `--ray` made of a large corpus."
)


def _segment(settings: SegmentSettings, asked: Invocation) -> None:
    """Cut every target into subsequences, and the data into train, dev and test.

    A pipelined decoder writes the subsequences of a text at the same time. This command
    shows, before anything is trained, how many decoder steps that saves on your data at
    Δt = 1, 2 and 3.
    """
    terminal = asked.terminal
    segmented = segment_job.segment(settings, terminal)
    if segmented.statistics and not asked.quiet and not asked.as_json:
        demo.show_segmented(segmented, terminal)
    if segmented.statistics:
        # Questions are learnt by a decoder-only model, which the default is not.
        model = "MODEL" if segmented.segmentation.sets else None
        taught = TrainSettings(
            data=settings.out, workspace=settings.workspace, model=model
        )
        _say_next("train", taught, settings.recipe)
    if asked.as_json:
        segmentation = to_builtins(segmented.segmentation)
        _print_json({"out": str(segmented.out), **segmentation, **segmented.details})


def _train(settings: TrainSettings, asked: Invocation) -> None:
    """Train a pipelined decoder, or the sequential model that a report compares with.

    Any checkpoint of a served family is a start. train.jsonl is trained on, dev.jsonl
    evaluated, test.jsonl not read.

    With --teacher the sources suffice: the model that you run today writes the targets,
    and the pipelined decoder starts from its weights and learns to write like it.
    """
    if is_main():
        terminal = asked.terminal
    else:  # only the first of several processes speaks
        terminal = Terminal(quiet=True, console=Console(quiet=True))
    trained = train_job.train(settings, terminal)
    if is_main() and asked.as_json:
        write_stdout(to_json(trained.result) + "\n")


def _generate(settings: GenerateSettings, asked: Invocation) -> None:
    """Generate a text from each source, several subsequences at a time: greedy, no sampling."""
    gives_text = bool(settings.text) or settings.plain
    if asked.as_json or settings.confidence or settings.spans:
        gives_text = False

    def show(generated: Generated, line: Mapping[str, Any]) -> None:
        shown = generated.text if gives_text else to_json(line)
        if gives_text and sys.stdout.isatty():
            shown = visible(shown)
        write_stdout(shown + "\n")

    result = generate_job.generate(settings, asked.terminal, show)
    if isinstance(result, str):
        write_stdout(result + "\n")
    if result is None or isinstance(result, str):
        return
    if not settings.in_parts:
        then = generate_job.next_commands(settings, Path(result.out))
        if then:
            log.info(f"next: {then}")
    if asked.as_json:
        write_stdout(to_json(to_builtins(result)) + "\n")


def _merge(settings: MergeSettings, asked: Invocation) -> None:
    """Put the parts of a job together, in order, when all are there."""
    result = shard_job.merge(
        settings,
        asked.terminal,
        lambda line: write_stdout(to_json(line) + "\n"),
    )
    if result is not None and asked.as_json:
        write_stdout(to_json(to_builtins(result)) + "\n")


def _score(settings: ScoreSettings, asked: Invocation) -> None:
    """Score predictions: ROUGE, keyphrases at 5 and at M, multi-span answers, or the fields of objects.

    With a second file, the difference between the two as well, with a 95 % interval
    from a paired bootstrap.
    """
    from pipedec_cli.view.results import show_scores

    result = score_job.score(settings, asked.terminal)
    if asked.as_json:
        _print_json(result.content)
    else:
        show_scores(result.runs, result.differences, result.content)
    if settings.other is not None:
        return
    if settings.predictions is None and is_model(settings.place.model("pipelined")):
        _say_next("report", ReportSettings(workspace=settings.workspace))
    else:
        scored = result.runs[0].run.path
        both = replace(settings, predictions=scored, other=Path("OTHER"), out=None)
        _say_next("score", both)


def _report(settings: ReportSettings, asked: Invocation) -> None:
    """Compare decoders on your data and this machine: quality, speed, decoder steps, memory, and what goes wrong.

    Generates what is missing, scores all of it, and times a sample, the decoders in
    turn in one process. The baseline is the model's teacher, else the workspace's
    sequential model, else the waiting schedule of the same model. The report ends in
    advice: which delay to take, or that the method does not help here.
    """
    from pipedec_cli.jobs.report import report
    from pipedec_cli.view.results import show_report

    compared = report(settings, asked.terminal)
    if asked.as_json:
        _print_json(compared.content)
    else:
        show_report(make_console(stderr=False), compared.report)


def _bench(settings: BenchSettings, asked: Invocation) -> None:
    """See in a minute what the method can give on this machine: speed without training, on forced lengths.

    The model computes every step; only the end of each subsequence is forced, for all
    decoders alike. Gains are split into fewer calls (the schedule) and faster calls
    (the kernels).
    """
    from pipedec_cli.jobs.bench import bench
    from pipedec_cli.view.results import bench_sheets

    measured, content = bench(settings, asked.terminal)
    if asked.as_json:
        _print_json(content)
    else:
        for sheet in bench_sheets(measured):
            show_sheet(make_console(stderr=False), sheet)
    if measured.conditions.stopped:  # by Ctrl-C: what was measured by then is shown
        raise KeyboardInterrupt
    _say_next("segment", SegmentSettings(data="DATA"))


def _import_data(settings: ImportSettings, asked: Invocation) -> None:
    """Turn a published data set into JSON lines: id, source, and target as text or as a list of segments.

    A file in another layout is refused with the first place where it differs. No
    program of a data set is run.
    """
    if asked.as_json and settings.to_stdout:
        raise UserError("--json and --out - both want stdout", todo="leave one out")
    terminal = asked.terminal
    imported = import_job.import_data(settings, terminal, write_stdout)
    if not asked.quiet:
        sheet = import_sheet(imported.files, imported.dataset)
        show_sheet(terminal.talk.console, sheet)
    if not settings.to_stdout:
        _say_next("segment", *import_job.segmenting(settings, imported))
    if asked.as_json:
        _print_json(imported.content)


def _say_next(command: str, settings: Settings, recipe: str | None = None) -> None:
    """Say which command goes on from what was done, with the recipe that it takes, if any."""
    config = f" --config {recipe}" if recipe else ""
    log.info(f"next: `{command_line(command, settings)}{config}`")


def _print_json(content: Mapping[str, Any]) -> None:
    write_stdout(to_json(content, indent=2) + "\n")


_SHOWN: Final = ("as_json", "quiet")

MERGE: Final = Command(
    "merge",
    MergeSettings,
    _merge,
    """
pipedec generate corpus/ --out made/ --part 3/16   # a sixteenth, on this machine
pipedec generate corpus/ --out made/ --ray         # all parts, by Ray
pipedec shard merge made/                          # when all parts are there
pipedec shard merge made/ --out - | gzip > all.jsonl.gz
""",
    _SHOWN,
)
#: The commands in the order of the help text.
COMMANDS: Final = (
    Command(
        "segment",
        SegmentSettings,
        _segment,
        """
pipedec segment data.jsonl --level sentence       # lines of {"source": "…", "target": "…"}
pipedec segment train.csv --dev dev.csv --source-field article --target-field highlights
pipedec segment keyphrases.jsonl --level phrase   # targets are lists, or "a; b; c"
pipedec segment facts.jsonl --level field         # targets are objects
pipedec segment inputs.jsonl --sources-only       # for train --teacher
""",
    ),
    Command(
        "train",
        TrainSettings,
        _train,
        """
pipedec train                                     # a small T5 from scratch, for every delay
pipedec train --teacher ./my-model                # a faster model that writes like yours
pipedec train --model Qwen/Qwen3-0.6B --chat --lora 16 --bf16
pipedec train --decoder sequential                # the model that a report compares with
pipedec train --resume                            # go on after a stop
torchrun --nproc-per-node 2 -m pipedec_cli train --model google-t5/t5-large --bf16
""",
    ),
    Command(
        "generate",
        GenerateSettings,
        _generate,
        """
pipedec generate --delay 2 --resume               # the test set; go on after a stop
pipedec generate --exact my-model --draft source  # the same text in fewer calls, no training
pipedec generate docs.jsonl --model my-chat-model --schema person.json  # objects, no training
""",
    ),
    Command("serve", *resolve_name("pipedec_cli.serve.command:COMMAND")),
    Command(
        "score",
        ScoreSettings,
        _score,
        """
pipedec score                                     # the predictions that were generated last
pipedec score ours.jsonl theirs.jsonl             # and the difference
pipedec score kp.jsonl --task keyphrases --protocol meng2017
pipedec score answers.json --gold valid.json      # the files of MultiSpanQA
""",
    ),
    Command(
        "report",
        ReportSettings,
        _report,
        """
pipedec report                                    # at the model's own delay
pipedec report --delays 1,2,3,wait
pipedec report --compare transformers,ctranslate2
pipedec report --compare exact                    # the sequential model's text in fewer calls
pipedec report --batch-sizes 1,4,16 --dtype bfloat16 --limit 200
""",
    ),
    Command(
        "bench",
        BenchSettings,
        _bench,
        """
pipedec bench                                     # T5-Base's shape, the lengths of WikiHowQA
pipedec bench --compare transformers,ctranslate2:int8 --dtypes float32,bfloat16,int8
pipedec bench --subsequences 8 --tokens 12 --source 512 --delays 1,2,3
pipedec bench --model scratch-qwen3-0.6b --compare transformers,ctranslate2
""",
        ("set_keys", *_SHOWN),
    ),
    Command(
        "import",
        ImportSettings,
        _import_data,
        """
pipedec import msqa MultiSpanQA_data              # its folder: msqa/train.jsonl, …
pipedec import kp20k kp20k_testing.json --out test.jsonl
pipedec import cnn_dailymail abisee/cnn_dailymail:3.0.0 --split test --limit 1000
pipedec import parallel train_src.txt --targets train_trg.txt
""",
        _SHOWN,
    ),
    Command("demo", demo.DemoSettings, demo.demo, demo.EXAMPLES, ()),
)
