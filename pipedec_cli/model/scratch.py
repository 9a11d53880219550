"""What training starts from: a T5 shape with fresh weights and a tokenizer of the user's own data, or a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field, plain_text
from pipedec_cli.data.records import Record
from pipedec_cli.data.segmentation import Segmenter
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings, load_checkpoint


class Shape(NamedTuple):
    """The sizes of a T5: `layers` of the encoder and of the decoder, at most `vocabulary` tokens of its tokenizer."""

    d_model: int
    d_ff: int
    layers: int
    heads: int
    vocabulary: int
    dropout: float = 0.1  # none for the smallest, which sees its data a few times at most
    d_kv: int = 64


SHAPES: Final = {
    "scratch-tiny": Shape(d_model=256, d_ff=1024, layers=3, heads=4, vocabulary=4_000, dropout=0.0),
    "scratch-small": Shape(d_model=512, d_ff=2048, layers=6, heads=8, vocabulary=16_000),
    "scratch-base": Shape(d_model=768, d_ff=3072, layers=12, heads=12, vocabulary=32_000),
    "scratch-large": Shape(d_model=1024, d_ff=4096, layers=24, heads=16, vocabulary=32_000),
}
ALIKE: Final = "scratch"
PAD, EOS, UNKNOWN = 0, 1, 2
#: Records that a fresh tokenizer is trained on; more of them change it little.
_TOKENIZER_RECORDS: Final = 20_000


def start_checkpoint(
    name: str,
    settings: MethodSettings,
    records: Sequence[Record],
    seed: int,
    segmenter: Segmenter | None = None,
    like: Checkpoint | None = None,
) -> Checkpoint:
    """The model that training begins with, of a shape, a local folder or a hub name; a UserError if there is none.

    The seed is that of fresh weights, and the training records are for a fresh tokenizer. ``scratch`` is the shape and the
    tokenizer of a checkpoint that it is to be `like`.
    """
    if name == ALIKE and like is not None:
        torch.manual_seed(seed)
        model = type(like.model)(like.model.config)
        return Checkpoint(model, like.tokenizer, settings, name, segmenter=segmenter)
    if name in SHAPES:
        torch.manual_seed(seed)
        some = records[:_TOKENIZER_RECORDS]
        fields = settings.segmentation.fields
        texts = (text for record in some for text in (record.source, *_written(record, fields)))
        tokenizer = train_tokenizer(texts, SHAPES[name].vocabulary)
        model = make_model(SHAPES[name], len(tokenizer))
        return Checkpoint(model, tokenizer, settings, name, segmenter=segmenter)
    if name.startswith("scratch"):
        todo = f"use one of {', '.join(SHAPES)}, or {ALIKE} with --teacher"
        raise UserError(f"there is no shape {name!r}", todo=todo)
    checkpoint = load_checkpoint(name)
    checkpoint.settings, checkpoint.segmenter = settings, segmenter
    return checkpoint


def _written(record: Record, fields: Sequence[Field]) -> Sequence[str]:
    """What is to be written of a record; of an object the keys, too, and the same for either decoder."""
    segments = record.target_segments or ()
    return [plain_text(segments, fields)] if fields and segments else segments


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Any:
    """A byte-level BPE tokenizer of at most so many tokens, with T5's special ones; no text is lost to it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    # A space before the first word too, so that a word is the same token wherever it stands.
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<pad>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", EOS)])
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "extra_special_tokens": []}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def make_model(shape: Shape, vocabulary: int) -> Any:
    """A T5ForConditionalGeneration with fresh weights, drawn from torch's global generator."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=-(-vocabulary // 8) * 8,  # a multiple of 8 suits the matrix kernels
        d_model=shape.d_model,
        d_kv=shape.d_kv,
        d_ff=shape.d_ff,
        num_layers=shape.layers,
        num_heads=shape.heads,
        dropout_rate=shape.dropout,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
    )
    return T5ForConditionalGeneration(config)
