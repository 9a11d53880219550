"""The model that training starts from: a checkpoint, or fresh weights with a tokenizer trained on the user's data."""

import copy
from collections.abc import Iterable, Sequence
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
    unless `kv_heads` says it.
    """

    d_model: int
    d_ff: int
    layers: int
    heads: int
    vocabulary: int
    dropout: float = (
        0.1  # none for the smallest model, which sees its data only a few times
    )
    d_kv: int = 64
    kv_heads: int | None = None
    family: Family = "t5"


SHAPES: Final = {
    "scratch-demo": Shape(
        d_model=96, d_ff=384, layers=2, heads=2, vocabulary=1_000, dropout=0.0
    ),
    "scratch-tiny": Shape(
        d_model=256, d_ff=1024, layers=3, heads=4, vocabulary=4_000, dropout=0.0
    ),
    "scratch-small": Shape(
        d_model=512, d_ff=2048, layers=6, heads=8, vocabulary=16_000
    ),
    "scratch-base": Shape(
        d_model=768, d_ff=3072, layers=12, heads=12, vocabulary=32_000
    ),
    "scratch-large": Shape(
        d_model=1024, d_ff=4096, layers=24, heads=16, vocabulary=32_000
    ),
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
    """The shape of that name, which may end in a family; None if no shape has it."""
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
    """The checkpoint of that name: a shape, a local folder or a hub name; a `UserError` if there is none.

    The `seed` draws fresh weights, and a fresh tokenizer is trained on the `records`.
    ``scratch`` has the shape and the tokenizer of the checkpoint `like`. The `dtype` is
    for all but fresh weights, which are in float32.
    """
    if name == LIKE_TEACHER and like is not None:
        torch.manual_seed(seed)
        model = like.backbone.fresh(
            copy.deepcopy(like.model.config)
        )  # a model keeps the config it is given
        model.config.eos_token_id = like.eos
        return Checkpoint(model, like.tokenizer, settings, name, segmenter=segmenter)
    if (shape := shape_of(name)) is not None:
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
        todo = f"give {LIKE_TEACHER} with --teacher, or a shape such as {FRESH[1]}"
        raise UserError(
            f"{LIKE_TEACHER} is a teacher's shape, and there is no teacher", todo=todo
        )
    checkpoint = load_checkpoint(name, dtype=dtype)
    checkpoint.settings, checkpoint.segmenter = settings, segmenter
    checkpoint.end_as_usual()
    checkpoint.model.config.eos_token_id = (
        checkpoint.eos
    )  # what is learnt ends in one way
    return checkpoint


def _texts(records: Iterable[Record], settings: MethodSettings) -> Iterable[str]:
    """All texts of the records: sources and segments; of objects the plain text, which has the keys as well.

    Both decoders get the same texts, so that they get the same tokenizer.
    """
    fields = settings.segmentation.fields
    for record in records:
        segments = record.target_segments or ()
        yield record.source
        yield from [plain_text(segments, fields)] if fields and segments else segments


def train_tokenizer(
    texts: Iterable[str],
    vocabulary: int,
    *,
    begins: bool = False,
    family: Family = "t5",
) -> Any:
    """A byte-level BPE tokenizer of at most so many tokens, with T5's special tokens. It can encode any text.

    With `begins`, <s> stands before each text; else </s> stands after it. It divides
    texts as transformers does when it loads the tokenizer of a model of the `family`.
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
    if family == "qwen2":
        own = Qwen2Tokenizer().backend_tokenizer
        backend.normalizer, backend.pre_tokenizer = own.normalizer, own.pre_tokenizer
    else:
        # A space before the first word as well, so that a word is the same token
        # wherever it stands.
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
    backend.post_processor = processors.TemplateProcessing(
        single=around[0], special_tokens=around[1]
    )
    special = {
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "extra_special_tokens": [],
    }
    special |= {"bos_token": "<s>"} if begins else {}
    made = PreTrainedTokenizerFast(tokenizer_object=backend, **special)
    if family != "qwen2":
        return made
    # Whatever a Qwen2's tokenizer is, transformers makes a Qwen2Tokenizer of its
    # vocabulary.
    with TemporaryDirectory() as folder:
        made.save_pretrained(folder)
        return Qwen2Tokenizer.from_pretrained(folder)


def make_model(shape: Shape, vocabulary: int) -> Any:
    """A model of the shape's family with fresh weights, drawn from torch's global generator."""
    import transformers

    # A multiple of 8 suits the matrix kernels.
    common = {
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        "vocab_size": -(-vocabulary // 8) * 8,
    }
    kind: str = shape.family
    sizes: dict[str, Any] = {  # of a stack of layers with rotary positions
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_ff * 2 // 3,  # of three matrices, where T5 has two
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads or max(1, shape.heads // 2),
        "head_dim": shape.d_kv,
        "bos_token_id": BOS,
        "max_position_embeddings": 32_768,
    }
    match shape.family:
        case "t5":
            sizes = {"d_model": shape.d_model, "d_kv": shape.d_kv, "d_ff": shape.d_ff}
            sizes |= {
                "num_heads": shape.heads,
                "num_layers": shape.layers,
                "dropout_rate": shape.dropout,
            }
            sizes |= {"decoder_start_token_id": PAD}
        case "bart":
            sizes = {
                "d_model": shape.d_model,
                "dropout": shape.dropout,
                "bos_token_id": PAD,
            }
            sizes |= {"decoder_start_token_id": PAD, "forced_eos_token_id": None}
            for half in ("encoder", "decoder"):
                sizes |= {f"{half}_layers": shape.layers, f"{half}_ffn_dim": shape.d_ff}
                sizes |= {f"{half}_attention_heads": shape.heads}
        case "t5gemma":  # its halves have configurations of their own
            halves = {"encoder": sizes | common, "decoder": sizes | common}
            sizes = {**halves, "bos_token_id": BOS, "decoder_start_token_id": BOS}
        case family:
            kind = "gemma3_text" if family == "gemma3" else family
            sizes |= {
                "num_hidden_layers": 2 * shape.layers,
                "tie_word_embeddings": True,
            }
    config = transformers.AutoConfig.for_model(kind, **common, **sizes)
    return backbone_of(config).fresh(config)
