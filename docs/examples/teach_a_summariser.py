"""Teach a faster model to write the texts of a slower one: segment, train, generate, score.

``python teach_a_summariser.py [--teacher MODEL] [--data FILE]``. MODEL is your own
summariser, a folder or the name of a model on the Hugging Face hub. A line of FILE is
``{"source": "...", "target": "One sentence. Another sentence."}``. Without MODEL, a small
one is trained first. Without FILE, facts and texts about them are made up.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import pipedec_cli as pipedec
from pipedec_cli.data.demo import make_demo
from pipedec_cli.jobs.generate import generate
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.score import ScoreSettings, score
from pipedec_cli.jobs.segment import SegmentSettings, segment
from pipedec_cli.jobs.train import train
from pipedec_cli.jobs.train_settings import TrainSettings


def made_up(path: Path, count: int) -> Path:
    """Write a file of facts, each with a text of several sentences."""
    lines = [json.dumps(record) + "\n" for record in make_demo(count, seed=0)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the teacher, unless there is one, and a pipelined model that learns from it. Score the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", help="your own summariser")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--workspace", type=Path, default=Path("summariser"))
    parser.add_argument("--records", type=int, default=2_000, help="to make up")
    parser.add_argument("--updates", type=int, default=300, help="of each training")
    chosen = parser.parse_args(arguments)
    workspace = chosen.workspace
    workspace.mkdir(parents=True, exist_ok=True)

    # Cut each text into its sentences. One part of the records is for tests.
    data = chosen.data or made_up(workspace / "made-up.jsonl", chosen.records)
    segment(SegmentSettings(data=str(data), level="sentence", workspace=workspace))

    # The teacher is an ordinary model: it writes one token after the other.
    teacher = chosen.teacher
    if teacher is None:
        ordinary = TrainSettings(
            decoder="sequential",
            model="scratch-demo",
            max_steps=chosen.updates,
            overwrite=True,
            workspace=workspace,
        )
        teacher = str(train(ordinary).target)

    # The pipelined model starts from the teacher's weights. It learns the teacher's texts.
    taught = TrainSettings(
        teacher=teacher,
        max_steps=chosen.updates,
        overwrite=True,
        workspace=workspace,
    )
    model = str(train(taught).target)

    # Write the texts of the test records, and compare them with the right ones.
    generate(GenerateSettings(delay=2, workspace=workspace))
    scored = score(ScoreSettings(workspace=workspace))
    print(json.dumps(dict(scored.content["values"]), indent=2))

    # Use the model. A decoder call writes a token in each sentence that is open.
    decoder = pipedec.load(model)
    source = make_demo(1, seed=1)[0]["source"]
    for result in decoder.texts([source], decoder.method(delay=2)):
        print(result.text)
        print(result.tokens, "tokens in", result.steps, "decoder calls")


if __name__ == "__main__":
    main()
