"""The model, tokenizer and config of a folder or of the hub, by transformers; what is damaged or unknown is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import torch

from pipedec_cli.data.checking import checked
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.tokenizer_file import MOST, check_growth
from pipedec_cli.model.backbone import OPENERS
from pipedec_cli.model.families import FAMILIES, backbone_of
from pipedec_cli.model.prepared import keep_prepared
from pipedec_cli.model.text import TextCodec
from pipedec_cli.model.training import lora

CONFIG: Final = "config.json"
KEY: Final = "pipedec"  # of the method's settings in config.json

#: A text that a broken tokenizer fails at: a letter, and a character that no tokenizer knows.
_TRIAL: Final = "a \U0010fffd"


def load_pretrained(name: str, dtype: torch.dtype, *, local: bool) -> tuple[Any, Any, Any]:
    """The model, the tokenizer, and the settings in config.json as they stand there. No code of the checkpoint is run."""
    import transformers

    if local:
        lora.require_whole(Path(name))
    with quiet():
        config, content = load_config(name, local=local)
        tokenizer = load_tokenizer(name, config, local=local)
        _check_tokenizer(tokenizer, config.vocab_size, name)
        _check_sizes(config, Path(name))
        make = getattr(transformers, backbone_of(config).auto_class).from_pretrained
        options = {"config": config, "local_files_only": local, "trust_remote_code": False}
        model, info = make(name, **options, dtype=dtype, output_loading_info=True)
        if info["missing_keys"]:  # transformers would fill them with fresh weights
            raise ValueError(f"its weights lack {', '.join(sorted(info['missing_keys'])[:3])}")
        if unused := sorted(key for key in info["unexpected_keys"] if re.search(r"\.\d+\.", key)):
            raise ValueError(f"its weights have layers that config.json does not count, as {unused[0]}")
        if local:
            keep_prepared(Path(name), model, tokenizer, content)
    return model, tokenizer, content


def load_tokenizer(name: str, config: Any, *, local: bool) -> Any:
    """The tokenizer of transformers. No code of the checkpoint is run."""
    import transformers

    check_growth(name, local=local)
    options = {"config": config, "local_files_only": local, "trust_remote_code": False}
    return transformers.AutoTokenizer.from_pretrained(name, **options)


def _check_tokenizer(tokenizer: Any, vocab_size: int, name: str) -> None:
    """Refuse a tokenizer that is not there, fails, or has ids that the weights do not have."""
    vocabulary = tokenizer.get_vocab()
    if len(vocabulary) - len(tokenizer.all_special_tokens) <= 1:
        # Where there are no files, transformers makes a tokenizer that knows nothing but the special tokens.
        raise ValueError("it has no tokenizer")
    if max(map(len, vocabulary)) > MOST:
        raise ValueError(f"its tokenizer has a token of more than {MOST:,} characters")
    trial = TextCodec(tokenizer, "", 8, 0)
    trial.decode(trial.ids([_TRIAL])[0])
    # Special tokens, which no text becomes, may lie outside the weights: BART's <mask>, or Gemma 3's image tokens.
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    if (largest := max({*vocabulary.values()} - special | {tokenizer.unk_token_id or 0})) >= vocab_size:
        what = f"the tokenizer has ids up to {largest}, vocab_size in config.json is {vocab_size}"
        raise UserError(what, where=name, todo="take the tokenizer that the weights were trained with")


def _check_sizes(config: Any, folder: Path) -> None:
    """Refuse a config of more numbers than a folder's weights have bytes: transformers would allocate them all."""
    with torch.device("meta"):
        count = sum(weight.numel() for weight in backbone_of(config).fresh(config).parameters())
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if 0 < size < count:  # a hub model has no folder
        raise ValueError("its weights are not of the sizes in config.json")


def load_config(name: str, *, local: bool) -> tuple[Any, Any]:
    """The model's configuration, with nothing but what the family's schema knows, and our settings as they stand there."""
    import transformers
    from huggingface_hub.errors import StrictDataclassError

    raw, _ = transformers.PreTrainedConfig.get_config_dict(name, local_files_only=local)
    if (kind := raw.get("model_type")) is None:
        raise ValueError("its config.json names no model_type")
    if (family := FAMILIES.get(kind)) is None:
        todo = f"use a checkpoint of one of these families: {', '.join(FAMILIES)}"
        raise UserError(f"{name} is a {kind!r} model, which is not supported", todo=todo)
    given, opener = {**transformers.AutoConfig.for_model(kind).to_dict(), **raw}, OPENERS[0]
    if not family.prompted and given.get(opener) is None:
        with suppress(OSError):  # a checkpoint need not have a generation_config.json
            made = transformers.GenerationConfig.from_pretrained(name, local_files_only=local)
            given[opener] = made.decoder_start_token_id
        given[opener] = next((given[key] for key in OPENERS if given.get(key) is not None), None)
    try:
        found = msgspec.to_builtins(checked(given, family.config, name))
        settled = {key: value for key, value in found.items() if key in {*raw, opener}}
        config = transformers.AutoConfig.for_model(kind, **settled, _commit_hash=raw.get("_commit_hash"))
    except (UserError, StrictDataclassError) as error:
        reason = error.what if isinstance(error, UserError) else error.__cause__
        what, todo = f"no {kind} can be built of it: {reason}", "take the file that belongs to the weights"
        raise UserError(what, where=f"{name}/{CONFIG}", todo=todo) from error
    return config, raw.get(KEY)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars and notes off the terminal."""
    from transformers.utils import logging

    level, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
