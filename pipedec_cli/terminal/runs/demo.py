"""What `pipedec demo` does: the whole workflow on data that the package makes, by the functions of the other commands."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pipedec_cli.data.demo import FactCount, check_facts, make_demo
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.predictions import read_predictions
from pipedec_cli.data.records import DecoderKind
from pipedec_cli.data.workspace import Workspace
from pipedec_cli.data.writing import write_json, write_json_lines
from pipedec_cli.model.train_settings import usual_settings
from pipedec_cli.terminal.console import Talk
from pipedec_cli.terminal.runs.generation import run_generation
from pipedec_cli.terminal.runs.generation_request import GenerateRequest
from pipedec_cli.terminal.runs.report import run_report
from pipedec_cli.terminal.runs.report_lineup import ReportRequest
from pipedec_cli.terminal.runs.training import TrainRequest, run_training
from pipedec_cli.terminal.segment import SegmentSettings, segment

DELAY: Final = 2
#: Stands in the demo's folder, so that a later demo knows it for its own.
MARK: Final = "made-by-pipedec-demo"


@dataclass(frozen=True, slots=True)
class DemoRequest:
    """How large the demo is; the defaults take three to five minutes on two cores.

    Attributes:
        examples: how many are made, all splits together.
        updates: training updates of each decoder.
        batch_size: examples an update.
        test: test examples that are generated from.
        timed: examples that are timed.
        seed: of data and training.
    """

    examples: int = 6000
    updates: int = 600
    batch_size: int = 8
    test: int = 100
    timed: int = 16
    seed: int = 0


def run_demo(request: DemoRequest, *, out: Path, talk: Talk) -> None:
    """Make data, segment, train both decoders, generate with the live grid, report, and say what to do next.

    Raises:
        UserError: the folder holds something that no demo made.
    """
    _clear(out)
    place = Workspace(out)
    data = out / "data.jsonl"
    write_json_lines(data, make_demo(request.examples, request.seed))
    _headline(talk, f"1 of 5: cut the targets into sentences   (pipedec segment {data} --level sentence)")
    segment(SegmentSettings(data=str(data), seed=request.seed, workspace=out, quiet=talk.quiet))
    for step, decoder in ((2, "pipelined"), (3, "sequential")):
        kind: DecoderKind = "pipelined" if decoder == "pipelined" else "sequential"
        _headline(talk, f"{step} of 5: train the {decoder} decoder   (pipedec train --decoder {decoder})")
        run_training(_train(kind, request), data=None, out=None, workspace=out, talk=talk, as_json=False)
    _headline(
        talk, f"4 of 5: watch one being generated   (pipedec generate --delay {DELAY} --live --limit 1)"
    )
    shown = GenerateRequest(delay=DELAY, limit=1, batch_size=1)
    run_generation(shown, out=None, resume=False, live=True, workspace=out, talk=talk)
    _headline(talk, "5 of 5: compare   (pipedec report --compare sequential --delays 1,2,3)")
    comparison = ReportRequest(
        delays=(1, DELAY, 3), limit=request.test, timed=request.timed, memory=False, batch_size=8
    )
    run_report(comparison, out=None, workspace=out, talk=talk, as_json=False)
    facts = count_facts(place)
    write_json(place.report / "facts.json", facts)
    _last_words(talk, facts, out)


def count_facts(place: Workspace) -> dict[str, dict[str, int]]:
    """Facts stated right, stated wrong and missing, by file of predictions: the demo's targets can be counted."""
    counts: dict[str, dict[str, int]] = {}
    for path in sorted((place.root / "generations").glob("*.jsonl")):
        total = FactCount(0, 0, 0)
        for prediction in read_predictions(path):
            if prediction.record is not None:
                total += check_facts(prediction.text, {"source": prediction.record.source})
        counts[path.stem] = {"right": total.right, "wrong": total.wrong, "missing": total.missing}
    return counts


def _clear(out: Path) -> None:
    """Remove an earlier demo, and nothing else."""
    if out.exists():
        if not (out / MARK).exists():
            raise UserError(
                f"{out} is there already and no demo made it", todo="give another folder with --out"
            )
        shutil.rmtree(out)
    out.mkdir(parents=True)
    (out / MARK).touch()


def _train(decoder: DecoderKind, request: DemoRequest) -> TrainRequest:
    settings = replace(
        usual_settings(fresh=True),
        batch_size=request.batch_size,
        max_steps=request.updates,
        evaluations=3,
        seed=request.seed,
    )
    return TrainRequest(
        model="scratch-tiny",
        decoder=decoder,
        delay="any",
        source_prefix="",
        max_source_tokens=2048,
        time_max=50,
        dev_examples=48,
        limit=None,
        resume=False,
        overwrite=True,
        training=settings,
    )


def _headline(talk: Talk, text: str) -> None:
    talk.say("")
    talk.say(text)


def _last_words(talk: Talk, facts: dict[str, dict[str, int]], out: Path) -> None:
    talk.say("")
    for name, count in facts.items():
        stated = count["right"] + count["missing"]
        if stated:
            talk.say(
                f"{name}: {count['right']:,} of {stated:,} facts right ({100 * count['right'] / stated:.1f} %), "
                f"{count['wrong']:,} wrong sentences"
            )
    talk.say("")
    talk.say(f"All of it is in {out}. On your own data, a data.jsonl of objects with `source` and `target`:")
    for command in (
        "pipedec segment data.jsonl --level sentence",
        "pipedec train",
        "pipedec train --decoder sequential",
        f"pipedec generate --delay {DELAY} --live",
        "pipedec report --compare sequential --delays 1,2,3",
    ):
        talk.say(f"  {command}")
