"""Single decoder steps, by rows, beside the time in which the memory can be read.

    python -m tests.trials.steps --model scratch-base --dtypes float32,int8 --rows
    1,4,8,16

The model is a folder, a hub name or a shape with fresh weights. A step reads every
matrix of the decoder once, and the keys and values of one example. The limit is the
time to read as many bytes, measured beside each repeat: a shared machine's memory
changes its speed from minute to minute.
"""

import argparse
from itertools import chain, product
from statistics import median

import torch
from torch import nn

from pipedec_cli.compare.timing import device_clock, pause, time_of
from pipedec_cli.jobs.bench import loaded
from pipedec_cli.jobs.report_settings import BenchSettings
from pipedec_cli.model.arguments import INT4
from pipedec_cli.model.families import backbone_of
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot

CACHED = 160  # tokens in the grid while a step is timed, on average
STEPS = 8  # timed one after the other
FILLING = 16  # rows of a call that only fills the grid
PROBED = 1 << 30  # bytes, several times the largest cache of a processor
TOKEN = 3  # any token
#: The bytes of a weight with its share of the scales; in int4 of most weights and of
#: the output matrix.
BYTES = {torch.int8: 34 / 32, INT4: 148 / 256}
HEAD_BYTES = 210 / 256


def step_bytes(model, dtype, source):
    """The bytes that a step must read: the decoder's matrices, and one example's keys and values."""
    backbone, head = backbone_of(model.config), model.get_output_embeddings()
    item = BYTES.get(dtype, float(dtype.itemsize))
    head_item = HEAD_BYTES if dtype == INT4 else item
    of_source = {
        *chain.from_iterable(backbone.parts.source_projections(model))
    }  # computed before
    modules = {
        module
        for module in model.get_decoder().modules()
        if isinstance(module, nn.Linear)
    }
    matrices = sum(module.weight.numel() for module in modules - of_source - {head})
    sizes, config = (
        backbone.sizes(model.config),
        model.config.get_text_config(decoder=True),
    )
    kinds = getattr(config, "layer_types", None) or [""] * sizes.layers
    beside, tokens = (0, source + CACHED) if backbone.prompted else (source, CACHED)
    windowed = min(tokens, getattr(config, "sliding_window", None) or tokens)
    seen = sum(
        beside + (windowed if kind == "sliding_attention" else tokens) for kind in kinds
    )
    remembered = 2 * sizes.heads * sizes.head_width * seen
    return int(
        item * matrices + head_item * head.weight.numel() + max(item, 2) * remembered
    )


def step_seconds(engine, count, source, clock):
    """The median time of a few steps of `count` rows, with about `CACHED` tokens in the grid."""

    def step(time, count):
        return engine.step(
            [Row(0, Slot(number, time, TOKEN)) for number in range(1, 1 + count)]
        )

    engine.admit([(0, source)])
    before = max(0, CACHED - count * STEPS // 2)
    for first in range(0, before, FILLING):
        step(first // FILLING, min(FILLING, before - first))
    time = 1 + before // FILLING
    step(time, count)
    seconds = [
        time_of(clock, lambda at=at: step(time + at, count))
        for at in range(1, 1 + STEPS)
    ]
    engine.release(0)
    return median(seconds)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="scratch-base")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--rows", default="1,4,8,16")
    parser.add_argument("--source", type=int, default=512, help="tokens of the source")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    clock, source = device_clock(asked.device), [TOKEN] * asked.source
    buffer = torch.ones(PROBED // 4, device=asked.device)
    settings = BenchSettings(model=asked.model, dtypes=tuple(asked.dtypes.split(",")))
    with loaded(settings, asked.device) as decoders:
        engines = [(decoder.engine(), decoder.checkpoint.model) for decoder in decoders]
        needed = {
            engine: step_bytes(model, engine.weights.dtype, asked.source)
            for engine, model in engines
        }
        cases = [*product(needed, map(int, asked.rows.split(",")))]
        timed = [[] for _ in cases]
        for _ in range(1 + asked.repeats):  # the first repeat warms up
            for (engine, count), results in zip(cases, timed, strict=True):
                pause()
                reading = min(
                    time_of(clock, lambda: buffer.sum().item()) for _ in range(3)
                )
                limit = needed[engine] * reading / PROBED
                results.append((step_seconds(engine, count, source, clock), limit))
    print("dtype, rows: step in ms, limit in ms, limit ÷ step")
    for (engine, count), results in zip(cases, timed, strict=True):
        step, limit = (
            1000 * median(column) for column in zip(*results[1:], strict=True)
        )
        share = median(limit / step for step, limit in results[1:])
        print(
            f"{str(engine.weights.dtype)[6:]}, {count}: {step:.2f}, {limit:.2f}, {share:.2f}"
        )


if __name__ == "__main__":
    main()
