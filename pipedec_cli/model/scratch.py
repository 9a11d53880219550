"""The model that training starts from: a checkpoint, or fresh weights with a tokenizer trained on the user's data."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any, Final, get_args

import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import plain_text
from pipedec_cli.data.records import Family, Record
from pipedec_cli.data.segmentation import Segmenter
from pipedec_cli.data.trained import FRESH, require_start
from pipedec_cli.model.checkpoint import Checkpoint, MethodSettings, load_checkpoint
from pipedec_cli.model.families import backbone_of


@dataclass(frozen=True)
class Shape:
    """The sizes of a model: `layers` of the encoder and of the decoder; its tokenizer has at most `vocabulary` tokens.

    A decoder-only model has twice as many layers, and half as many key heads as `heads`
    unless `kv_heads` says it. The smallest models have no `dropout`: they see their
    data only a few times.
    """

    d_model: int
    d_ff: int
    layers: int
    heads: int
    vocabulary: int
    dropout: float = 0.1
    d_kv: int = 64
    kv_heads: int | None = None
    family: Family = "t5"


SHAPES: Final = {
    "scratch-demo": Shape(96, 384, 2, 2, 1_000, dropout=0.0),
    "scratch-tiny": Shape(256, 1024, 3, 4, 4_000, dropout=0.0),
    "scratch-small": Shape(512, 2048, 6, 8, 16_000),
    "scratch-base": Shape(768, 3072, 12, 12, 32_000),
    "scratch-large": Shape(1024, 4096, 24, 16, 32_000),
    "scratch-qwen3-0.6b": Shape(
        1024, 4608, 14, 16, 151_936, 0.0, d_kv=128, kv_heads=8, family="qwen3"
    ),
}
#: The name of a model with the shape and the tokenizer of the teacher.
LIKE_TEACHER: Final = FRESH[0]
PAD, EOS, UNKNOWN, BOS = 0, 1, 2, 3
#: A fresh tokenizer is trained on so many records. More of them change it little.
_TOKENIZER_RECORDS: Final = 20_000


def shape_of(name: str) -> Shape | None:
    """The shape of that name, such as scratch-tiny or, with a family at its end, scratch-tiny-llama; None for other names."""
    if name in SHAPES:
        return SHAPES[name]
    size, _, family = name.rpartition("-")
    for known in get_args(Family):
        if known == family and size in SHAPES:
            return replace(SHAPES[size], family=known)
    return None


def start_checkpoint(
    name: str,
    settings: MethodSettings,
    records: Sequence[Record],
    seed: int,
    segmenter: Segmenter | None = None,
    like: Checkpoint | None = None,
    dtype: torch.dtype = torch.float32,
) -> Checkpoint:
    """The checkpoint that a training starts from: fresh weights of a shape, or a local folder or hub name.

    A `UserError` if there is none of that name.

    Args:
        name: A shape such as scratch-tiny, or scratch for that of `like`, or a folder,
            or a hub name.
        settings: What it will be trained for; they replace those of a folder.
        records: A fresh tokenizer is trained on their texts.
        seed: Draws fresh weights.
        segmenter: What cuts texts as the training targets are cut.
        like: A teacher, whose shape and tokenizer scratch has.
        dtype: Of the weights of a folder or hub model. Fresh weights are in float32.
    """
    if name == LIKE_TEACHER and like is not None:
        torch.manual_seed(seed)
        # A model keeps the config that it is given.
        model = like.backbone.fresh(copy.deepcopy(like.model.config))
        model.config.eos_token_id = like.eos
        return Checkpoint(model, like.tokenizer, settings, name, segmenter=segmenter)
    shape = shape_of(name)
    if shape is not None:
        torch.manual_seed(seed)
        texts = _texts(records[:_TOKENIZER_RECORDS], settings)
        begins = shape.family not in ("t5", "bart")
        tokenizer = train_tokenizer(
            texts, shape.vocabulary, begins=begins, family=shape.family
        )
        model = make_model(shape, len(tokenizer))
        return Checkpoint(model, tokenizer, settings, name, segmenter=segmenter)
    require_start(name)
    if name == LIKE_TEACHER:
        what = f"{LIKE_TEACHER} is a teacher's shape, and there is no teacher"
        todo = f"give {LIKE_TEACHER} with --teacher, or a shape such as {FRESH[1]}"
        raise UserError(what, todo=todo)
    checkpoint = load_checkpoint(name, dtype=dtype)
    checkpoint.settings = settings
    checkpoint.segmenter = segmenter
    checkpoint.end_as_usual()
    # What is learnt ends in one way.
    checkpoint.model.config.eos_token_id = checkpoint.eos
    return checkpoint


def _texts(records: Iterable[Record], settings: MethodSettings) -> Iterator[str]:
    """All texts of the records: sources and segments; of objects the plain text, which has the keys as well.

    Both decoders get the same texts, so that they get the same tokenizer.
    """
    fields = settings.segmentation.fields
    for record in records:
        yield record.source
        segments = record.target_segments or ()
        if fields and segments:
            yield plain_text(segments, fields)
        else:
            yield from segments


def train_tokenizer(
    texts: Iterable[str],
    vocabulary: int,
    *,
    begins: bool = False,
    family: Family = "t5",
) -> Any:
    """Train a byte-level BPE tokenizer on texts: of at most `vocabulary` tokens, with T5's special tokens.

    It can encode any text. With `begins`, <s> stands before each text; else </s> stands
    after it. It divides texts as transformers does when it loads the tokenizer of a
    model of the `family`.
    """
    from tokenizers import (
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        processors,
        trainers,
    )
    from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer

    backend = Tokenizer(models.BPE())
    # A space before the first word as well, so that a word is the same token wherever
    # it stands.
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    if family == "qwen2":
        usual = Qwen2Tokenizer().backend_tokenizer
        backend.normalizer = usual.normalizer
        backend.pre_tokenizer = usual.pre_tokenizer
    backend.decoder = decoders.ByteLevel()
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    text = "$A </s>"
    added = ("</s>", EOS)
    if begins:
        special |= {"bos_token": "<s>"}
        text = "<s> $A"
        added = ("<s>", BOS)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[*special.values()],  # in the order of their ids
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single=text, special_tokens=[added]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, extra_special_tokens=[], **special
    )
    if family != "qwen2":
        return tokenizer
    # Whatever a Qwen2's tokenizer is, transformers makes a Qwen2Tokenizer of its
    # vocabulary.
    with TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return Qwen2Tokenizer.from_pretrained(folder)


def make_model(shape: Shape, vocabulary: int) -> Any:
    """A model of a shape with fresh weights, drawn from torch's global generator, for a tokenizer of so many tokens."""
    import transformers

    common = {
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        # A multiple of 8 suits the matrix kernels.
        "vocab_size": -(-vocabulary // 8) * 8,
    }
    kind: str = shape.family
    if shape.family == "t5":
        sizes = _t5_sizes(shape)
    elif shape.family == "bart":
        sizes = _bart_sizes(shape)
    elif shape.family == "t5gemma":
        # Its halves have configurations of their own.
        half = _rotary_sizes(shape, shape.layers) | common
        sizes = {"encoder": half, "decoder": {**half}}
        sizes |= {"bos_token_id": BOS, "decoder_start_token_id": BOS}
    else:
        kind = "gemma3_text" if shape.family == "gemma3" else shape.family
        sizes = _rotary_sizes(shape, 2 * shape.layers) | {"tie_word_embeddings": True}
    config = transformers.AutoConfig.for_model(kind, **common, **sizes)
    return backbone_of(config).fresh(config)


def _t5_sizes(shape: Shape) -> dict[str, Any]:
    """The settings of a T5 of this shape, by their names in its config."""
    return {
        "d_model": shape.d_model,
        "d_kv": shape.d_kv,
        "d_ff": shape.d_ff,
        "num_heads": shape.heads,
        "num_layers": shape.layers,
        "dropout_rate": shape.dropout,
        "decoder_start_token_id": PAD,
    }


def _bart_sizes(shape: Shape) -> dict[str, Any]:
    """The settings of a BART of this shape, by their names in its config."""
    return {
        "d_model": shape.d_model,
        "dropout": shape.dropout,
        "bos_token_id": PAD,
        "decoder_start_token_id": PAD,
        "forced_eos_token_id": None,
        "encoder_layers": shape.layers,
        "encoder_ffn_dim": shape.d_ff,
        "encoder_attention_heads": shape.heads,
        "decoder_layers": shape.layers,
        "decoder_ffn_dim": shape.d_ff,
        "decoder_attention_heads": shape.heads,
    }


def _rotary_sizes(shape: Shape, layers: int) -> dict[str, Any]:
    """The settings of a stack of so many layers with rotary positions, by their names in a config."""
    return {
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_ff * 2 // 3,  # of three matrices, where T5 has two
        "num_hidden_layers": layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads or max(1, shape.heads // 2),
        "head_dim": shape.d_kv,
        "bos_token_id": BOS,
        "max_position_embeddings": 32_768,
    }
