"""A toy T5 that has learnt a few texts by heart: its two best logits are far apart, so that no test meets a tie.

It is trained by the tool's own code, on its own data, in a few seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import torch

from pipedec_cli.data.records import Record, Segmentation
from pipedec_cli.model.batches import Decoder
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings, load_checkpoint
from pipedec_cli.model.scratch import Shape, make_model, train_tokenizer
from pipedec_cli.model.train_settings import TrainSettings
from pipedec_cli.model.training import encode_all, train

#: Source, and the phrases that are its target: none, one or several of them, of different lengths.
TOY: Final = (
    ("red 3", ("red red red",)),
    ("blue 1 red 2", ("blue", "red red")),
    ("green 4 blue 2", ("green green green green", "blue blue")),
    ("green 1 blue 1 red 1", ("green", "blue", "red")),
    ("red 1 green 5", ("red", "green green green green green")),
    ("blue 3 green 2 red 4", ("blue blue blue", "green green", "red red red red")),
    ("nothing", ()),
    ("white 2 blue 1 red 3 green 1", ("white white", "blue", "red red red", "green")),
    ("white 6", ("white white white white white white",)),
    ("blue 2 white 2", ("blue blue", "white white")),
)
SHAPE: Final = Shape(d_model=64, d_ff=128, layers=2, heads=4, vocabulary=300, dropout=0.0, d_kv=16)
UPDATES: Final = 240


def toy_records(texts: Sequence[tuple[str, Sequence[str]]] = TOY) -> list[Record]:
    """The toy data as `segment` would leave it."""
    return [
        Record(
            id=str(number),
            source=source,
            target="; ".join(segments),
            target_segments=tuple(segments),
            references=("; ".join(segments),),
            where=f"toy:{number}",
        )
        for number, (source, segments) in enumerate(texts, start=1)
    ]


def toy_checkpoint(
    decoder: Decoder = "pipelined", delay: int | Literal["any"] = "any", shape: Shape = SHAPE
) -> Checkpoint:
    """A fresh model for the toy data, its tokenizer trained on it."""
    tokenizer = train_tokenizer((text for source, segments in TOY for text in (source, *segments)), 300)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = make_model(shape, len(tokenizer)).eval()
    settings = MethodSettings(decoder, delay, Segmentation("phrase", (";",), "; ", sub_max=8), time_max=20)
    return Checkpoint(model, tokenizer, settings, "toy")


def train_toy(folder: Path, **shown: Any) -> Checkpoint:
    """Train on schedules drawn at random, save, and load what was saved."""
    checkpoint = toy_checkpoint()
    examples = encode_all(checkpoint, toy_records())
    settings = TrainSettings(batch_size=5, max_steps=UPDATES, learning_rate=3e-3, evaluations=1, cpu=True)
    train(checkpoint, examples, [], folder, settings, **shown)
    return load_checkpoint(str(folder))
