"""Small T5 checkpoints that know a few texts by heart, made on the spot, without network, in a few seconds.

What they say is known, has several subsequences of different lengths, and is far from
ties, which what a model of random weights says is not. There are two:

- the toy, for tests of the model: `TOY`, phrases, trained by the tool's own training;
- the tiny ones, for tests of commands: `TOLD`, sentences, in the layout of any family
  and with any settings, each kind trained once and written to as many folders as are
  asked for.
"""

import fcntl
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import pytest
import torch
from msgspec import structs

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import DecoderKind, Level, Record, Segmentation
from pipedec_cli.data.segmentation import make_segmenter
from pipedec_cli.model.checkpoint import (
    Checkpoint,
    MethodSettings,
    load_checkpoint,
    save_checkpoint,
)
from pipedec_cli.model.scratch import EOS, PAD, Shape, make_model, train_tokenizer
from pipedec_cli.training.collate import collator, encode
from pipedec_cli.training.encoded import Encoded
from pipedec_cli.training.hyperparameters import Hyperparameters
from pipedec_cli.training.loss import TeacherForcing
from pipedec_cli.training.order import Turn
from pipedec_cli.training.trainer import train
from tests.words import refusing

Family = Literal["t5", "mt5", "umt5", "llama", "qwen2", "qwen3", "smollm3", "gemma3"]
#: Sources, and the segments of their targets.
Texts = Sequence[tuple[str, tuple[str, ...]]]

#: A target is none, one or several phrases, of different lengths.
TOY: Final[Texts] = (
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
TOY_SHAPE: Final = Shape(
    d_model=64, d_ff=128, layers=2, heads=4, vocabulary=300, dropout=0.0, d_kv=16
)
TOY_UPDATES: Final = 300
#: A shape with dropout, so that a resumed run has to find the chance of the undisturbed
#: one.
SMALL: Final = replace(TOY_SHAPE, d_model=32, d_ff=32, heads=2, dropout=0.1)
#: A training so short that a test can have several.
_SIZES: Final[Any] = {
    "epochs": 10.0,
    "batch_size": 3,
    "accumulation": 1,
    "max_steps": 6,
    "evaluations": 2,
}
_RATE: Final[Any] = {"optimizer": "adamw", "learning_rate": 1e-3, "schedule": "linear"}
QUICK: Final = Hyperparameters(**_SIZES, **_RATE, bf16=False, seed=0, cpu=True)

TOLD: Final[Texts] = (
    (
        "name[The Mill], food[Chinese], price[cheap]",
        ("The Mill is cheap.", "It serves Chinese food."),
    ),
    ("name[The Vaults], type[pub]", ("The Vaults is a pub.",)),
    ("a", ("A.", "B.", "C.", "D.")),
    (
        "rating[5 out of 5], family friendly[yes], area[riverside], near[The Mill], price[high]",
        (
            "It is rated 5 out of 5.",
            "Families are welcome there, says Mr. Smith.",
            "You find it by the river, near The Mill.",
            "The price is high.",
            "Book early!",
        ),
    ),
    (
        "Mr. Smith",
        ("Nobody goes there after ten, says Mr. Smith, who has been there.", "Why?"),
    ),
    ("it is not", ("Is it?", "So they say, but nobody knows.", "It is not.")),
)
SOURCES: Final = tuple(source for source, _ in TOLD)
TINY_UPDATES: Final = 300
TINY_RATE: Final = 1e-2
#: The variable that names the folder of what the processes of a test run share.
SHARED: Final = "PIPEDEC_TESTS"


def toy_records() -> list[Record]:
    """The toy data as `segment` would leave it."""
    return _records(TOY, "; ")


def _records(texts: Texts, joiner: str) -> list[Record]:
    found = []
    for number, (source, segments) in enumerate(texts, start=1):
        target = joiner.join(segments)
        found.append(
            Record(str(number), source, target, segments, (target,), f"told:{number}")
        )
    return found


def fresh_toy(
    decoder: DecoderKind = "pipelined",
    delay: int | Literal["any"] = "any",
    shape: Shape = TOY_SHAPE,
) -> Checkpoint:
    """A model of random weights for the toy data, its tokenizer trained on it."""
    texts = (text for source, segments in TOY for text in (source, *segments))
    begins = shape.family not in ("t5", "bart")
    tokenizer = train_tokenizer(texts, 300, begins=begins, family=shape.family)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = make_model(shape, len(tokenizer)).eval()
    settings = MethodSettings(
        decoder, delay, Segmentation("phrase", (";",), "; ", sub_max=8), time_max=20
    )
    return Checkpoint(model, tokenizer, settings, "toy")


def examples_of(checkpoint: Checkpoint) -> list[Encoded]:
    return list(encode(checkpoint, toy_records()))


def weights_of(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    return {
        name: tensor.clone() for name, tensor in checkpoint.model.state_dict().items()
    }


def train_toy(folder: Path) -> None:
    """Train the toy on schedules drawn at random, as the tool does."""
    checkpoint = fresh_toy()
    # At 0.003 one text of ten stayed wrong in some trainings on a CPU without AVX-512;
    # at 0.001 in none of 15 there.
    hyper = replace(QUICK, batch_size=5, max_steps=TOY_UPDATES, evaluations=1)
    train(checkpoint, examples_of(checkpoint), [], folder, hyper)


def tiny_checkpoint(
    folder: Path,
    *,
    decoder: DecoderKind = "pipelined",
    family: Family = "t5",
    level: Level = "phrase",
    sub_max: int = 20,
    **settings: Any,
) -> Path:
    """Write a checkpoint as `pipedec train` does, which has learnt `TOLD`; gives its folder.

    Its weights serve any delay and have learnt without a prefix, whatever its settings
    say (other `MethodSettings` may be given). The level of its segmentation decides how
    segments are put together: ``"; "`` for phrases, else a space.
    """
    learnt = _learn(decoder, family)
    assert learnt.settings is not None
    separators, joiner = ((";",), "; ") if level == "phrase" else ((), " ")
    segmentation = Segmentation(level, separators, joiner, sub_max)
    made = structs.replace(learnt.settings, segmentation=segmentation, **settings)
    segmenter = make_segmenter(
        level, separators=separators, targets=[" ".join(told) for _, told in TOLD]
    )
    save_checkpoint(
        replace(learnt, settings=made, name=str(folder), segmenter=segmenter), folder
    )
    return folder


def change(path: Path, *missing: str, **values: Any) -> None:
    """Change or take out fields of a file of JSON."""
    content = {**json.loads(path.read_text(encoding="utf-8")), **values}
    kept = {key: content[key] for key in content if key not in missing}
    path.write_text(json.dumps(kept), encoding="utf-8")


def refused(name: str | Path, *, words: bool = True) -> str:
    """The one line with which a checkpoint is refused, by transformers and where its files are read without that.

    Its words are those of its entry in words.txt, if they are not a library's.
    """
    lines = set()
    for computed in (None, torch.float32):
        with refusing() if words else pytest.raises(UserError) as error:
            load_checkpoint(str(name), computed=computed)
        lines.add(str(error.value))
    (line,) = lines
    assert "\n" not in line
    return line


def _fresh(family: Family, vocabulary: int) -> Any:
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    if not family.endswith("t5"):
        return make_model(
            Shape(32, 64, 1, 4, vocabulary, 0.0, d_kv=8, family=family), vocabulary
        )
    sizes = {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 64,
        "num_layers": 2,
        "num_heads": 4,
        "dropout_rate": 0.0,
    }
    ids = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": PAD}
    return AutoModelForSeq2SeqLM.from_config(
        AutoConfig.for_model(family, vocab_size=vocabulary, **sizes, **ids)
    )


@cache
def _learn(decoder: DecoderKind, family: Family) -> Checkpoint:
    """A checkpoint of this kind; all processes of a test run take the one that the first of them has trained."""
    if SHARED not in os.environ:
        return _train(decoder, family)
    name = f"{decoder}-{family}"
    return trained_once(
        name, lambda folder: save_checkpoint(_train(decoder, family), folder)
    )


def trained_once(name: str, train_into: Callable[[Path], object]) -> Checkpoint:
    """The checkpoint of this name: the first process of a test run that asks for it trains it, and all load it."""
    folder = Path(os.environ[SHARED]) / name
    folder.parent.mkdir(exist_ok=True)
    with Path(f"{folder}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "config.json").exists():  # saved last
            train_into(folder)
    return load_checkpoint(str(folder))


def _train(decoder: DecoderKind, family: Family) -> Checkpoint:
    texts, prompted = (
        [text for source, told in TOLD for text in (source, *told)],
        not family.endswith("t5"),
    )
    tokenizer = train_tokenizer(texts * 4, 500, begins=prompted, family=family)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _fresh(family, len(tokenizer))
    settings = MethodSettings(decoder, "any", Segmentation("phrase", (";",), "; "))
    checkpoint = Checkpoint(model, tokenizer, settings, "tiny")
    learn_by_heart(checkpoint, _records(TOLD, " "))
    return checkpoint


def learn_by_heart(
    checkpoint: Checkpoint,
    records: Sequence[Record],
    updates: int = TINY_UPDATES,
    rate: float = TINY_RATE,
) -> None:
    """Train with Adam on all records at once, with the schedules that the checkpoint is for."""
    examples = [
        (Turn(0, number), one) for number, one in enumerate(encode(checkpoint, records))
    ]
    module: Any = TeacherForcing(checkpoint.model).train()
    optimizer = torch.optim.Adam(module.parameters(), lr=rate, fused=True)
    rates = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, updates)
    for seed in range(
        updates
    ):  # one each, since the draw of schedules depends on nothing else here
        module(**collator(checkpoint, seed)(examples))["loss"].backward()
        # No step on this way is large: what is learnt has a margin on every CPU tried.
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rates.step()
    checkpoint.model.eval()
