"""The model, tokenizer and config of a folder or of the hub, by transformers; what is damaged or unknown is refused."""

import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import torch

from pipedec_cli.data.errors import UserError, first_line, log
from pipedec_cli.data.reading import as_json, contents
from pipedec_cli.data.segmentation import MOST, check_growth
from pipedec_cli.model.bare import require_finite
from pipedec_cli.model.families import (
    FAMILIES,
    OPENERS,
    backbone_of,
    check_config,
    listed,
)
from pipedec_cli.model.text import TextCodec

CONFIG = "config.json"
GENERATION = "generation_config.json"
TOKENIZER: Final = "tokenizer.json"
KEY: Final = "pipedec"  # of the method's settings in config.json
#: Older names of what transformers 5 writes into other keys. It still reads them, and
#: prefers some to the new ones.
OLDER: Final = frozenset(
    {
        "rope_theta",
        "rope_scaling",
        "rope_local_base_freq",
        "sliding_window_pattern",
        "partial_rotary_factor",
        "rotary_pct",
        "rotary_emb_base",
    }
)
#: Keys of a config.json that are read beside those that transformers' class of the
#: family writes.
_READ: Final = OLDER | {
    *OPENERS,
    "eos_token_id",
    "head_dim",
    "tie_word_embeddings",
    "tokenizer_class",
}
#: Keys that would change how transformers computes, and that no model needs here.
_UNREAD: Final = frozenset({"is_decoder", "use_bidirectional_attention", "use_cache"})

#: Keys of a config.json that say how weights are quantised, and names of methods as
#: users know them.
QUANTISED: Final = ("quantization_config", "compression_config")
_METHODS: Final = {
    "awq": "AWQ",
    "gptq": "GPTQ",
    "compression_config": "compressed-tensors",
    # Its first versions do not name themselves.
    "quantization_config": "bitsandbytes",
}
#: The types of weights that are numbers themselves, and those of fp8 and int8, as
#: safetensors and torch call them.
_NUMBERS: Final = re.compile(r"B?F(16|32|64)|torch\.b?float(16|32|64)")
_CODES: Final = {"fp8": re.compile("F8|float8"), "int8": re.compile(r"I8|torch\.int8")}

_OTHER_SIZES: Final = "its weights are not of the sizes in config.json"
#: A text that a broken tokenizer fails at: a letter, and a character that no tokenizer
#: knows.
_TRIAL: Final = "a \U0010fffd"


def load_pretrained(
    name: str, dtype: torch.dtype, *, local: bool
) -> tuple[Any, Any, Any]:
    """Load a model by transformers: the model, its tokenizer, and our settings as they stand in config.json, or None.

    `name` is a folder, if it is `local`, or a name on the hub. No code of the
    checkpoint is run. A UserError or a ValueError for what is damaged, or cannot be
    computed.
    """
    import transformers

    with quiet():
        config, content = load_config(name, local=local)
        tokenizer = _checked_tokenizer(name, config, local=local)
        if local:
            require_numbers(Path(name))
        _check_stored_size(name, config)
        model = _load_weights(name, config, dtype, local=local)
        if not local:  # by now its files are in the cache
            require_numbers(Path(transformers.utils.cached_file(name, CONFIG)).parent)
        for weight_name, weight in model.named_parameters():
            require_finite(weight_name, weight)
        _check_computes(model, name)
    return model, tokenizer, content


def _check_stored_size(name: str, config: Any) -> None:
    """Raise a ValueError if the files of a folder are smaller than one byte for each weight of the config.

    transformers would allocate all of them. A hub model has no folder.
    """
    try:
        with torch.device("meta"):
            weights = backbone_of(config).fresh(config).parameters()
            count = sum(weight.numel() for weight in weights)
    # Whatever transformers raises at sizes that do not fit each other.
    except Exception as error:
        raise _not_built(config.model_type, name, error) from error
    size = sum(path.stat().st_size for path in Path(name).glob("*.safetensors"))
    if 0 < size < count:
        raise ValueError(_OTHER_SIZES)


def _load_weights(name: str, config: Any, dtype: torch.dtype, *, local: bool) -> Any:
    """The model with its weights; a ValueError if they are not those of the config."""
    import transformers

    backbone = backbone_of(config)
    make = getattr(transformers, backbone.auto_class).from_pretrained
    model, info = make(
        name,
        config=config,
        local_files_only=local,
        trust_remote_code=False,
        dtype=dtype,
        output_loading_info=True,
    )
    missing = sorted(info["missing_keys"])
    if missing:  # transformers would fill them with fresh weights
        raise ValueError(f"its weights lack {', '.join(missing[:3])}")
    # A number in a name is that of a layer.
    of_layers = [key for key in info["unexpected_keys"] if re.search(r"\.\d+\.", key)]
    if of_layers:
        raise ValueError(
            f"its weights have layers that config.json does not count, as {min(of_layers)}"
        )
    if len(backbone.embedding(model).weight) < config.vocab_size:
        raise ValueError(_OTHER_SIZES)
    return model


def _check_computes(model: Any, name: str) -> None:
    """Try a model with a few tokens. A ValueError if transformers cannot compute it, a UserError if it cannot decode a grid."""
    if backbone_of(model.config).prompted:
        from pipedec_cli.model.fit import check_fit  # late: it imports transformers

        check_fit(model.eval(), name)
        return
    token = torch.zeros(1, 1, dtype=torch.long)
    with torch.inference_mode():
        logits = model.eval()(
            input_ids=token, use_cache=False, decoder_input_ids=token
        ).logits
    if logits.isnan().any():
        raise ValueError("what it computes of one token is no number")


def _checked_tokenizer(name: str, config: Any, *, local: bool) -> Any:
    """Load the tokenizer, and make sure that it fits the weights. A UserError says if a folder has none."""
    try:
        tokenizer = load_tokenizer(name, config, local=local)
        check_tokenizer(tokenizer, config.vocab_size, name)
    except UserError:
        raise
    except Exception as error:  # whatever transformers raises where there are no files
        if not local or (Path(name) / TOKENIZER).exists():
            raise
        todo = "copy the tokenizer's files of the model that it was made from"
        raise UserError(f"holds no {TOKENIZER}", where=name, todo=todo) from error
    return tokenizer


def load_tokenizer(name: str, config: Any, *, local: bool) -> Any:
    """Load the tokenizer by transformers; what it warns of is logged. No code of the checkpoint is run."""
    import transformers

    check_growth(name, local=local)
    options = {"config": config, "local_files_only": local, "trust_remote_code": False}
    with warnings.catch_warnings(record=True) as caught:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **options)
    for warning in caught:  # such as that a package is missing that some tokenizers use
        log.warning(f"{name}: {warning.message}")
    return tokenizer


def check_tokenizer(tokenizer: Any, vocab_size: int, name: str) -> None:
    """Raise an error for a tokenizer that knows no words, fails at a text, or has ids that the weights do not have.

    `vocab_size` is the number of tokens that the weights have, `name` the model's.
    """
    vocabulary = tokenizer.get_vocab()
    if len(vocabulary) - len(tokenizer.all_special_tokens) <= 1:
        # Where there are no files, transformers makes a tokenizer that knows nothing
        # but the special tokens.
        raise ValueError("it has no tokenizer")
    if max(map(len, vocabulary)) > MOST:
        raise ValueError(f"its tokenizer has a token of more than {MOST:,} characters")
    trial = TextCodec(tokenizer, "", 8, 0)
    trial.decode(trial.ids([_TRIAL])[0])
    # Special tokens, which no text becomes, may lie outside the weights: BART's <mask>,
    # or Gemma 3's image tokens.
    added = tokenizer.added_tokens_decoder.items()
    special = {number for number, token in added if token.special}
    of_texts = {*vocabulary.values()} - special
    largest = max(of_texts | {tokenizer.unk_token_id or 0})
    if largest >= vocab_size:
        what = f"the tokenizer has ids up to {largest}, vocab_size in config.json is {vocab_size}"
        todo = "take the tokenizer that the weights were trained with"
        raise UserError(what, where=name, todo=todo)


def require_numbers(folder: Path) -> None:
    """Raise a UserError if a folder's weights are stored as codes that other tensors scale, as in fp8 or int8.

    transformers takes the codes for the weights where config.json does not tell.
    """
    paths = sorted(folder.glob("model*.safetensors"))
    for path in paths or sorted(folder.glob("pytorch_model*.bin")):
        for name, dtype in _stored_dtypes(path):
            if "weight" in name and not _NUMBERS.fullmatch(dtype):
                codes = [code for code in _CODES if _CODES[code].search(dtype)]
                method = codes[0] if codes else "whole numbers"
                raise _quantised(method, f"{path}: {name}")


def _stored_dtypes(path: Path) -> Iterator[tuple[str, str]]:
    """The names of a file's tensors, and their dtypes as safetensors calls them or as torch does. Nothing is read but these."""
    from safetensors import safe_open

    if path.suffix == ".safetensors":
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118
                yield name, file.get_slice(name).get_dtype()
        return
    # A file of an older form, or a damaged one: transformers says so when it loads it.
    with suppress(Exception):
        tensors = torch.load(path, map_location="meta", mmap=True, weights_only=True)
        for name, tensor in tensors.items():
            yield name, str(tensor.dtype)


def _require_plain(config: Mapping[str, Any], where: str) -> None:
    """Raise a UserError if a config.json says that the weights are quantised."""
    for key in QUANTISED:
        settings = config.get(key)
        if isinstance(settings, dict):
            method = str(settings.get("quant_method", key))
            raise _quantised(_METHODS.get(method, method), where)


def _quantised(method: str, where: str) -> UserError:
    """The error of weights that are quantised by a method, and in which file."""
    todo = "take the model in bfloat16 or float32, which --dtype int8 and int4 round, or a GGUF file of it"
    return UserError(f"the weights are quantised ({method})", where=where, todo=todo)


def load_config(name: str, *, local: bool) -> tuple[Any, Any]:
    """Read the config.json of a folder, if it is `local`, or of a name on the hub.

    Returns the config as transformers has it, made of nothing but what the model's
    family knows, and our settings as they stand there, None without any. What ends a
    text, or opens it, may stand in generation_config.json as well. A UserError for a
    model that is quantised or not supported; an error of any kind for what cannot be.
    """
    import transformers

    raw, _ = transformers.PreTrainedConfig.get_config_dict(name, local_files_only=local)
    kind = raw.get("model_type")
    if kind is None:
        raise ValueError("its config.json names no model_type")
    _require_plain(raw, f"{name}/{CONFIG}")
    _require_family(kind, raw, name)
    usual = transformers.AutoConfig.for_model(kind)
    defaults = usual.to_dict()
    common = transformers.PreTrainedConfig().to_dict()
    # The attribute map has names that other families have for the same.
    settings = _known(raw, {**usual.attribute_map, **defaults}, common)
    path = transformers.utils.cached_file(
        name,
        GENERATION,
        local_files_only=local,
        _raise_exceptions_for_missing_entries=False,
    )
    generation = read_generation(path)
    settings |= named_ends(raw, generation)
    ends = listed(generation.get("eos_token_id"))
    vocab_size = (defaults | settings).get("vocab_size")
    _check_ends(ends, vocab_size, f"{name}/{GENERATION}")
    if kind in FAMILIES:
        settings[OPENERS[0]] = _opener_of(settings, defaults, generation)
    try:
        config = transformers.AutoConfig.for_model(
            kind, **settings, _commit_hash=raw.get("_commit_hash")
        )
        check_config(config)
    except UserError:
        raise
    except Exception as error:  # whatever transformers raises at a value
        raise _not_built(kind, name, error) from error
    return config, raw.get(KEY)


def _require_family(kind: str, config: Mapping[str, Any], name: str) -> None:
    """Raise a UserError if a model is neither of a family with an encoder nor a decoder-only model of texts."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if kind in FAMILIES:
        return
    has_more = config.get("is_encoder_decoder") or "text_config" in config
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or has_more:
        todo = f"use a decoder-only model for texts, or one of these families with an encoder: {', '.join(FAMILIES)}"
        raise UserError(
            f"{name} is a {kind!r} model, which is not supported", todo=todo
        )


def _opener_of(
    settings: Mapping[str, Any],
    defaults: Mapping[str, Any],
    generation: Mapping[str, Any],
) -> Any:
    """The id that opens a text, as the `settings` of a config name it, or else generation_config.json; None if none does.

    It is the first of `OPENERS` that has a value. Of the first of them the family's
    default in transformers does not count.
    """
    given = {**defaults, **settings}
    ids = [settings.get(OPENERS[0]), generation.get(OPENERS[0])]
    ids += [given.get(key) for key in OPENERS[1:]]
    return next((value for value in ids if value is not None), None)


def read_generation(path: Path | str | None) -> dict[str, Any]:
    """What a generation_config.json says; nothing if there is none. A UserError if it is no object."""
    if path is None:
        return {}
    content = as_json(contents(Path(path)), str(path))
    if not isinstance(content, dict):
        todo = "get the file again, or remove it"
        raise UserError("not a JSON object", where=str(path), todo=todo)
    return content


def named_ends(
    config: Mapping[str, Any], generation: Mapping[str, Any]
) -> dict[str, Any]:
    """The ``eos_token_id`` of a config.json and those that generation_config.json adds; {} if it adds none."""
    named = listed(config.get("eos_token_id"))
    more = [end for end in listed(generation.get("eos_token_id")) if end not in named]
    if not more:
        return {}
    return {"eos_token_id": named + more}


def _check_ends(ends: Sequence[Any], vocab_size: Any, where: str) -> None:
    """Raise a UserError for ends of a text, from the file `where`, that are no tokens of the model.

    Those of config.json are checked with its other ids.
    """
    most = vocab_size if isinstance(vocab_size, int) else math.inf
    for end in ends:
        if type(end) is not int or not 0 <= end < most:
            what = (
                f"eos_token_id {end!r} is not below vocab_size {vocab_size} of {CONFIG}"
            )
            todo = "take the file that belongs to the weights"
            raise UserError(what, where=where, todo=todo)


def _known(
    raw: dict[str, Any], defaults: dict[str, Any], common: dict[str, Any]
) -> dict[str, Any]:
    """Those settings of a config.json (`raw`) that its family has: by `defaults`, the keys of the family's own config.

    What all configs of transformers have in `common` is left out. So settings such as
    those of attention, of quantization or of code on the hub cannot turn up in a config
    by the back door.
    """
    names = (defaults.keys() - common.keys() - _UNREAD) | _READ
    settings = {key: value for key, value in raw.items() if key in names}
    for part in ("encoder", "decoder", "text_config", "vision_config"):
        if isinstance(settings.get(part), dict):
            settings[part] = _known(settings[part], defaults[part], common)
    return settings


def _not_built(kind: str, name: str, error: Exception) -> UserError:
    """The error of a config from which transformers cannot build a model of this kind."""
    what = f"no {kind} can be built of it: {first_line(error.__cause__ or error)}"
    return UserError(
        what, where=f"{name}/{CONFIG}", todo="take the file that belongs to the weights"
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars and notes off the terminal."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    shown = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
