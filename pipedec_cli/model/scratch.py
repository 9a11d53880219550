"""What training starts from: a shape with fresh weights and a tokenizer of the user's own data, or a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field, plain_text
from pipedec_cli.data.records import Family, Record
from pipedec_cli.data.segmentation import Segmenter
from pipedec_cli.data.trained import FRESH, require_start
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings, load_checkpoint
from pipedec_cli.model.families import FAMILIES


class Shape(NamedTuple):
    """The sizes of a model: `layers` of the encoder and of the decoder, at most `vocabulary` tokens of its tokenizer.

    A decoder-only model has the layers of both.
    """

    d_model: int
    d_ff: int
    layers: int
    heads: int
    vocabulary: int
    dropout: float = 0.1  # none for the smallest, which sees its data a few times at most
    d_kv: int = 64
    kv_heads: int | None = None  # of grouped queries; half of the heads by default
    family: Family = "t5"  # where none is asked for


SHAPES: Final = {
    "scratch-tiny": Shape(d_model=256, d_ff=1024, layers=3, heads=4, vocabulary=4_000, dropout=0.0),
    "scratch-small": Shape(d_model=512, d_ff=2048, layers=6, heads=8, vocabulary=16_000),
    "scratch-base": Shape(d_model=768, d_ff=3072, layers=12, heads=12, vocabulary=32_000),
    "scratch-large": Shape(d_model=1024, d_ff=4096, layers=24, heads=16, vocabulary=32_000),
    "scratch-qwen3-0.6b": Shape(1024, 4608, 14, 16, 151_936, 0.0, d_kv=128, kv_heads=8, family="qwen3"),
}
ALIKE: Final = FRESH[0]
PAD, EOS, UNKNOWN, BOS = 0, 1, 2, 3
#: Records that a fresh tokenizer is trained on; more of them change it little.
_TOKENIZER_RECORDS: Final = 20_000


def shape_of(name: str, family: Family | None = None) -> Shape | None:
    """The shape of that name, in the family that is asked for, else its own; None if it names none, a UserError if a family is asked for."""
    if (shape := SHAPES.get(name)) is not None:
        return shape._replace(family=family or shape.family)
    if family is not None:
        todo = "leave it out, or use --model scratch-tiny"
        raise UserError(f"--family {family} is for fresh weights", todo=todo)
    return None


def start_checkpoint(
    name: str,
    settings: MethodSettings,
    records: Sequence[Record],
    seed: int,
    segmenter: Segmenter | None = None,
    like: Checkpoint | None = None,
    family: Family | None = None,
) -> Checkpoint:
    """The model that training begins with, of a shape, a local folder or a hub name; a UserError if there is none.

    The seed is that of fresh weights, and the training records are for a fresh tokenizer. ``scratch`` is the shape and the
    tokenizer of a checkpoint that it is to be `like`. The `family` is of fresh weights.
    """
    if name == ALIKE and like is not None:
        torch.manual_seed(seed)
        model = like.backbone.fresh(like.model.config)
        return Checkpoint(model, like.tokenizer, settings, name, segmenter=segmenter)
    if (shape := shape_of(name, family)) is not None:
        torch.manual_seed(seed)
        some = records[:_TOKENIZER_RECORDS]
        fields = settings.segmentation.fields
        texts = (text for record in some for text in (record.source, *_written(record, fields)))
        tokenizer = train_tokenizer(texts, shape.vocabulary, begins=shape.family not in ("t5", "bart"))
        model = make_model(shape, len(tokenizer))
        return Checkpoint(model, tokenizer, settings, name, segmenter=segmenter)
    require_start(name)
    if name == ALIKE:
        todo = f"give {ALIKE} with --teacher, or a shape such as {FRESH[1]}"
        raise UserError(f"{ALIKE} is a teacher's shape, and there is no teacher", todo=todo)
    checkpoint = load_checkpoint(name)
    checkpoint.settings, checkpoint.segmenter = settings, segmenter
    checkpoint.end_as_usual()
    return checkpoint


def _written(record: Record, fields: Sequence[Field]) -> Sequence[str]:
    """What is to be written of a record; of an object the keys, too, and the same for either decoder."""
    segments = record.target_segments or ()
    return [plain_text(segments, fields)] if fields and segments else segments


def train_tokenizer(texts: Iterable[str], vocabulary: int, *, begins: bool = False) -> Any:
    """A byte-level BPE tokenizer of at most so many tokens, with T5's special ones; no text is lost to it.

    Where a text `begins` with a token of its own, there is one for that, too.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    # A space before the first word too, so that a word is the same token wherever it stands.
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<pad>", "</s>", "<unk>", *["<s>"] * begins],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    around = ("<s> $A", [("<s>", BOS)]) if begins else ("$A </s>", [("</s>", EOS)])
    backend.post_processor = processors.TemplateProcessing(single=around[0], special_tokens=around[1])
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "extra_special_tokens": []}
    special |= {"bos_token": "<s>"} if begins else {}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def make_model(shape: Shape, vocabulary: int) -> Any:
    """A model of the shape's family with fresh weights, drawn from torch's global generator."""
    import transformers

    kind = _TRANSFORMERS_NAMES.get(shape.family, shape.family)
    # A multiple of 8 suits the matrix kernels.
    common = {"pad_token_id": PAD, "eos_token_id": EOS, "vocab_size": -(-vocabulary // 8) * 8}
    sizes = _SIZES.get(shape.family, _rotary)(shape)
    for half in {"encoder", "decoder"} & sizes.keys():  # which are configurations of their own
        sizes[half] |= common
    return FAMILIES[kind].fresh(transformers.AutoConfig.for_model(kind, **common, **sizes))


def _t5(shape: Shape) -> dict[str, Any]:
    widths = {"d_model": shape.d_model, "d_kv": shape.d_kv, "d_ff": shape.d_ff, "num_heads": shape.heads}
    return {
        **widths,
        "num_layers": shape.layers,
        "dropout_rate": shape.dropout,
        "decoder_start_token_id": PAD,
    }


def _rotary(shape: Shape) -> dict[str, Any]:
    """Of a decoder alone, with as many layers as an encoder and a decoder."""
    return {**_half(shape), "num_hidden_layers": 2 * shape.layers, "tie_word_embeddings": True}


def _half(shape: Shape) -> dict[str, Any]:
    return {
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_ff * 2 // 3,  # of three matrices, where T5 has two
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads or max(1, shape.heads // 2),
        "head_dim": shape.d_kv,
        "bos_token_id": BOS,
        "max_position_embeddings": 32_768,
    }


def _t5gemma(shape: Shape) -> dict[str, Any]:
    return {
        "encoder": _half(shape),
        "decoder": _half(shape),
        "bos_token_id": BOS,
        "decoder_start_token_id": BOS,
    }


def _bart(shape: Shape) -> dict[str, Any]:
    halves = {
        f"{half}_{name}": value
        for half in ("encoder", "decoder")
        for name, value in {
            "layers": shape.layers,
            "ffn_dim": shape.d_ff,
            "attention_heads": shape.heads,
        }.items()
    }
    ids = {"bos_token_id": PAD, "decoder_start_token_id": PAD, "forced_eos_token_id": None}
    return {"d_model": shape.d_model, "dropout": shape.dropout, **halves, **ids}


_TRANSFORMERS_NAMES: Final = {"gemma3": "gemma3_text"}
_SIZES: Final[Mapping[str, Callable[[Shape], dict[str, Any]]]] = {
    "t5": _t5,
    "t5gemma": _t5gemma,
    "bart": _bart,
}
