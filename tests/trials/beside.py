"""Our passes over a GGUF file and llama.cpp's, in turn: a prompt, steps of one row and steps of several.

    python -m tests.trials.beside FILE.gguf --repeats 3 --prompt 512

Ours compute the blocks of the file. Both write whatever comes; each prompt is new.
"""

import argparse
import random
import time
from statistics import median

from pipedec_cli.decoding.decoder import load
from pipedec_cli.model.engine.native import store
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot
from pipedec_cli.threads import settle_threads

STEPS = 12  # timed one after the other
ROWS = 5  # of a call at Δt = 1 with 8 rows, on average
TOKEN = 7  # any token


def timed(work):
    """The seconds that a call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ours(engine, prompt):
    """Seconds of the prompt, of a step of one row, and of one of `ROWS`."""
    read = timed(lambda: engine.admit([(0, prompt)]))
    medians = []
    for count in (1, ROWS):
        seconds = []
        for number in range(STEPS):
            at = len(medians) * STEPS + number
            rows = [Row(0, Slot(row, at, TOKEN)) for row in range(1, 1 + count)]
            seconds.append(timed(lambda rows=rows: engine.step(rows)))
        medians.append(median(seconds))
    engine.release(0)
    return [read, *medians]


def theirs(model, prompt):
    """Seconds of the prompt with the first token, and of each token behind it."""
    model.reset()
    tokens = model.generate(prompt, temp=0.0)
    read = timed(lambda: next(tokens))
    seconds = [timed(lambda: next(tokens)) for _ in range(STEPS)]
    return [read, median(seconds)]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("file")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    from llama_cpp import Llama  # late: the package may not be installed

    settle_threads(asked.threads)
    engine = load(asked.file, device="cpu").engine(1)
    store.settle()
    places = asked.prompt + 2 * STEPS
    model = Llama(
        asked.file,
        n_ctx=places,
        n_threads=asked.threads,
        n_threads_batch=asked.threads,
        verbose=False,
    )
    draw = random.Random(0)
    passes = []
    for _ in range(asked.repeats):
        prompt = [draw.randrange(1000, 40_000) for _ in range(asked.prompt)]
        passes.append(ours(engine, prompt) + theirs(model, prompt))
    columns = zip(*passes, strict=True)
    read, step, wide, their_read, their_step = (1000 * median(all) for all in columns)
    print(f"prompt: {read:.0f} ms, llama.cpp {their_read:.0f}: {their_read / read:.1f}")
    print(f"step: {step:.1f} ms, llama.cpp {their_step:.1f}: {their_step / step:.1f}")
    print(f"step of {ROWS} rows: {wide:.1f} ms")


if __name__ == "__main__":
    main()
