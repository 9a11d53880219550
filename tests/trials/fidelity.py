"""The change that each dtype makes to a model's distributions of the next token, on given texts.

    python -m tests.trials.fidelity ./model texts.jsonl --dtypes bfloat16,int8 --tokens
    4000

The texts have a source and a target; a decoder-only model needs no source. Every token
of a target is predicted behind the target's own tokens. KL is the mean of Σ p · ln(p /
q) in nats, p in float32.
"""

import argparse
import math
from dataclasses import replace

import torch

from pipedec_cli.data.inputs import read_rows
from pipedec_cli.data.records import record_of
from pipedec_cli.data.segmentation import Preparer
from pipedec_cli.decoding.decoder import load
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot
from pipedec_cli.training.collate import collator, encode
from pipedec_cli.training.order import Turn

TOGETHER = 128  # rows of one call


def segmented(path, checkpoint):
    """The records of a file, their targets segmented as the checkpoint's targets were."""
    settings, codec, cut = checkpoint.settings, checkpoint.codec(), checkpoint.segmenter
    records = (record_of(row.value, row.where, row.number) for row in read_rows(path))
    if settings is None or cut is None:
        return list(records)
    count = lambda texts: [*map(len, codec.ids(texts))]  # noqa: E731
    return [
        *map(
            Preparer(cut, settings.segmentation, count, settings.time_max).segment,
            records,
        )
    ]


def chunks_of(engines, checkpoint, examples):
    """Admits each text to the engines. Yields chunks of its rows, and the token behind each row; below 0 none is learnt."""
    lay_out = collator(checkpoint, seed=0)
    for number, example in enumerate(examples):
        batch = {
            name: values[0].tolist()
            for name, values in lay_out([(Turn(0, number), example)]).items()
        }
        cells = zip(
            batch["subsequence"], batch["time"], batch["decoder_input_ids"], strict=True
        )
        rows = [Row(0, Slot(*cell)) for cell in cells]
        for engine in engines.values():
            engine.admit([(0, batch["input_ids"])])
            engine.stepper.settle(rows)
        for first in range(0, len(rows), TOGETHER):
            part = slice(first, first + TOGETHER)
            yield rows[part], torch.tensor(batch["labels"][part])


def compare(engines, checkpoint, examples, most):
    """The number of tokens, at most `most`; the sums of KL, equal first choices and −ln q by dtype, float32 first."""
    sums, places = {dtype: [0.0, 0, 0.0] for dtype in engines}, 0
    for rows, labels in chunks_of(engines, checkpoint, examples):
        learnt = (labels >= 0) & ((labels >= 0).cumsum(0) <= most - places)
        exact = None
        for dtype, engine in engines.items():
            q = engine.stepper.logits(rows)[learnt].float().log_softmax(dim=-1).cpu()
            exact = q if exact is None else exact
            sums[dtype][0] += float(
                (exact.exp() * (exact - q)).sum(dim=-1).double().sum()
            )
            sums[dtype][1] += int((exact.argmax(dim=-1) == q.argmax(dim=-1)).sum())
            sums[dtype][2] -= float(q.gather(1, labels[learnt][:, None]).double().sum())
        places += int(learnt.sum())
        if places >= most:
            break
    return places, sums


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("texts")
    parser.add_argument("--dtypes", default="bfloat16,int8,int4")
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    dtypes = dict.fromkeys(["float32", *asked.dtypes.split(",")])
    decoders = {
        dtype: load(asked.model, dtype=dtype, device=asked.device) for dtype in dtypes
    }
    first, engines = (
        decoders["float32"],
        {dtype: one.engine(1) for dtype, one in decoders.items()},
    )
    records = segmented(asked.texts, first.checkpoint)
    # Without a source and a prompt, a first token opens the text.
    sources = [
        first.text.source(record.source)[0] or [first.checkpoint.opener]
        for record in records
    ]
    texts = (
        replace(text, source=s)
        for text, s in zip(encode(first.checkpoint, records), sources, strict=True)
    )
    places, sums = compare(engines, first.checkpoint, texts, asked.tokens)
    print(f"{places} tokens; dtype: KL from float32, equal first choices, perplexity")
    for dtype, (kl, equal, surprise) in sums.items():
        perplexity = math.exp(surprise / places)
        print(f"{dtype}: {kl / places:.4f}, {equal / places:.1%}, {perplexity:.2f}")


if __name__ == "__main__":
    main()
