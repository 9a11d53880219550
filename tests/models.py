"""Small T5 checkpoints made on the spot, without network: a few seconds of training, once for each kind.

They know a handful of texts by heart. So what they say is known, has several subsequences of different lengths, and is
far from ties, which what a model of random weights says is not.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import torch

from pipedec_cli.data.records import Level, Record, Segmentation
from pipedec_cli.data.segmentation import make_segmenter
from pipedec_cli.model.batches import Decoder
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings, save_checkpoint
from pipedec_cli.model.scratch import EOS, PAD, train_tokenizer
from pipedec_cli.model.teacher_forcing import TeacherForcing
from pipedec_cli.model.training import collator, encode_all

Family = Literal["t5", "mt5", "umt5"]

#: Sources, and the segments of their targets.
TOLD: Final = (
    ("name[The Mill], food[Chinese], price[cheap]", ("The Mill is cheap.", "It serves Chinese food.")),
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
    ("Mr. Smith", ("Nobody goes there after ten, says Mr. Smith, who has been there.", "Why?")),
    ("it is not", ("Is it?", "So they say, but nobody knows.", "It is not.")),
)
SOURCES: Final = tuple(source for source, _ in TOLD)
UPDATES: Final = 160
RATE: Final = 1e-2


def tiny_checkpoint(
    folder: Path,
    *,
    decoder: Decoder = "pipelined",
    delay: int | Literal["any"] = "any",
    family: Family = "t5",
    level: Level = "phrase",
    sub_max: int = 20,
    time_max: int = 50,
    source_prefix: str = "",
    max_source_tokens: int = 2048,
) -> Path:
    """Write a checkpoint as `pipedec train` does, which has learnt `TOLD`.

    Args:
        folder: where to; made if need be.
        decoder: what it is trained as.
        delay: what it says that it is trained for; its weights serve any.
        family: whose layout it has.
        level: of its segmentation, which decides how segments are put together: ``"; "`` for phrases, else a space.
        sub_max: of its segmentation.
        time_max: of its settings.
        source_prefix: of its settings; it is trained without one.
        max_source_tokens: of its settings.

    Returns:
        the folder.
    """
    learnt = _learn(decoder, family)
    assert learnt.settings is not None
    separators, joiner = ((";",), "; ") if level == "phrase" else ((), " ")
    settings = replace(
        learnt.settings,
        delay=delay,
        segmentation=Segmentation(level, separators, joiner, sub_max),
        source_prefix=source_prefix,
        max_source_tokens=max_source_tokens,
        time_max=time_max,
    )
    segmenter = make_segmenter(level, separators=separators, targets=[" ".join(told) for _, told in TOLD])
    save_checkpoint(
        Checkpoint(learnt.model, learnt.tokenizer, settings, str(folder), segmenter=segmenter), folder
    )
    return folder


@cache
def _learn(decoder: Decoder, family: Family) -> Checkpoint:
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    tokenizer = train_tokenizer([text for source, told in TOLD for text in (source, *told)] * 4, 500)
    config = AutoConfig.for_model(
        family,
        vocab_size=len(tokenizer),
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForSeq2SeqLM.from_config(config)
    settings = MethodSettings(decoder, "any", Segmentation("phrase", (";",), "; "))
    checkpoint = Checkpoint(model, tokenizer, settings, "tiny")
    _train(checkpoint)
    return checkpoint


def _train(checkpoint: Checkpoint) -> None:
    """Adam over all examples at once, with the schedules that the checkpoint is for."""
    examples = encode_all(
        checkpoint,
        [
            Record(str(number), source, " ".join(told), told, (), "")
            for number, (source, told) in enumerate(TOLD)
        ],
    )
    module: Any = TeacherForcing(checkpoint.model).train()
    optimizer = torch.optim.Adam(module.parameters(), lr=RATE)
    rates = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, UPDATES)
    for seed in range(
        UPDATES
    ):  # a seed for each update, since the draw of schedules depends on nothing else here
        module(**collator(checkpoint, seed)(examples))["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        rates.step()
    checkpoint.model.eval()
