"""Almost exact: what a text loses, and how many calls it saves, where the words of a draft stand that the model finds good enough.

``python -m tests.trials.almost WORKSPACE DRAFTS`` prints a table of docs/results.md.
The workspace has a sequential model and the splits dev and test. DRAFTS are ``source``
or names of its pipelined models, with commas between them; ``--delays 1,2`` are theirs.
"""

import argparse
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import torch
from msgspec.structs import replace

from pipedec_cli.data.inputs import read_records
from pipedec_cli.data.records import Generated
from pipedec_cli.decoding.decoder import load
from pipedec_cli.decoding.exact import exact_decoder, measured
from pipedec_cli.metrics.differences import score_differences
from pipedec_cli.metrics.rouge import Rouge
from pipedec_cli.metrics.scoring import score_predictions
from pipedec_cli.pipeline.decode import Finished


@dataclass
class Texts:
    """The texts of a way to decode, and what they cost."""

    scores: object
    calls: float
    seconds: float
    log_probability: float  # the mean of a token
    results: list = field(default_factory=list)


def records_in(workspace, limit):
    """The records of dev and test, drawn at random, the same each time."""
    records = []
    for split in ("dev", "test"):
        records += read_records(str(workspace / "data" / f"{split}.jsonl"))
    chance = random.Random(0)
    return chance.sample(records, min(limit, len(records)))


def written(decoder, records, method, batch_size):
    """The texts of a decoder about records."""
    results = []
    logarithms = []
    began = time.perf_counter()
    sources = [record.source for record in records]
    for item in decoder.run(sources, method, batch_size):
        if isinstance(item, Generated):
            results.append(replace(item, record=records[item.index]))
        elif isinstance(item, Finished):
            logarithms.append(
                getattr(item.grid, "log_probability", 0.0)
                / max(1, item.grid.tokens + 1)
            )
    seconds = (time.perf_counter() - began) / len(records)
    scores = score_predictions(results, Rouge())
    calls = fmean(result.steps for result in results)
    return Texts(scores, calls, seconds, fmean(logarithms), results)


def refused(plain, results, accept):
    """How many tokens of texts fall short of the rule, when transformers reads each text once more."""
    model = plain.checkpoint.model
    count = 0
    for result in results:
        [(_, tokens)] = result.grid
        given = {"input_ids": torch.tensor([result.source_ids])}
        first = 0
        if plain.checkpoint.bos is None:
            first = len(result.source_ids) - 1
            given = {"input_ids": torch.tensor([[*result.source_ids, *tokens[:-1]]])}
        else:
            before = [plain.checkpoint.bos, *tokens[:-1]]
            given["decoder_input_ids"] = torch.tensor([before])
        with torch.inference_mode():
            logits = model(**given).logits[0, first:]
        chances = logits.float().softmax(dim=-1)
        best = chances.max(dim=-1).values
        own = chances[range(len(tokens)), list(tokens)]
        # Near ties of the engine's float32 and torch's fall on either side.
        count += int((own < accept * best * (1 - 1e-3)).sum())
    return count


def line(name, texts, usual):
    """A row of the table."""
    difference = score_differences(texts.scores, usual.scores)["rougeL"]
    same = sum(
        one.text == other.text
        for one, other in zip(texts.results, usual.results, strict=True)
    )
    dropped = fmean(len(result.text.split()) for result in texts.results)
    value = texts.scores.values["rougeL"]
    cells = [
        name,
        f"{value:.1f}",
        f"{difference.value:+.2f} ({difference.low:+.2f} to {difference.high:+.2f})",
        f"{texts.calls:.1f}",
        f"{texts.calls / usual.calls:.0%}",
        f"{texts.log_probability:.3f}",
        f"{texts.seconds:.3f}",
        f"{100 * same / len(usual.results):.0f} % same",
        f"{dropped:.1f} words",
    ]
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("drafts")
    parser.add_argument("--delays", default="1")
    parser.add_argument("--accept", default="1,0.5,0.3,0.1,0.03,0")
    parser.add_argument("--limit", type=int, default=400)
    parser.add_argument("--batch-sizes", default="1")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--read-again", action="store_true")
    asked = parser.parse_args()
    records = records_in(asked.workspace, asked.limit)
    models = asked.workspace / "models"
    consume = not asked.read_again
    plain = load(models / "sequential", dtype=asked.dtype, consume=consume)
    print(f"{len(records)} texts")
    for batch_size in map(int, asked.batch_sizes.split(",")):
        usual = written(
            plain, records, plain.method(max_tokens=asked.max_tokens), batch_size
        )
        line(f"plain, batch {batch_size}", usual, usual)
        costs = measured(plain, batch_size)
        for name in asked.drafts.split(","):
            if name == "source":
                ways = [(name, "source", None)]
            else:
                model = load(models / name, dtype=asked.dtype)
                ways = [
                    (f"{name} {delay}", model, int(delay))
                    for delay in asked.delays.split(",")
                ]
            for called, drafting, delay in ways:
                if delay:
                    alone = written(
                        drafting, records, drafting.method(delay), batch_size
                    )
                    line(f"{called} alone", alone, usual)
                for accept in map(float, asked.accept.split(",")):
                    decoder = exact_decoder(plain, drafting, accept)
                    decoder.drafter.costs = costs
                    if delay:
                        method = drafting.method(delay)
                    else:
                        method = decoder.method(max_tokens=asked.max_tokens)
                    texts = written(decoder, records, method, batch_size)
                    line(f"{called} {accept:g}", texts, usual)
                    if asked.read_again:
                        count = refused(plain, texts.results, accept)
                        print(
                            f"{count} tokens of {len(records)} texts against the rule"
                        )


if __name__ == "__main__":
    main()
