"""A model and its tokenizer from a folder's own files, without transformers, whose import takes seconds.

The compiled kernels need weights and a config alone. They are read here if transformers
5 wrote the folder: it completes config.json and tokenizer.json when it writes them. Of
other folders `foreign` reads the weights, and transformers the rest. Whatever does not
fit is left to transformers.
"""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import torch
from tokenizers import Tokenizer

from pipedec_cli.data.segmentation import check_content
from pipedec_cli.model import pretrained
from pipedec_cli.model.bare import BareModel, read_bare
from pipedec_cli.model.engine.native.describing import FAMILIES as COMPILED
from pipedec_cli.model.engine.native.describing import describe, describe_t5
from pipedec_cli.model.engine.native.kinds import encoder_dtype
from pipedec_cli.model.engine.native.library import library
from pipedec_cli.model.engine.native.packing import check_spec
from pipedec_cli.model.families import T5, check_config
from pipedec_cli.model.gguf_weights import read_weights
from pipedec_cli.model.mapped import Mapping
from pipedec_cli.model.pretrained import (
    CONFIG,
    GENERATION,
    KEY,
    OLDER,
    QUANTISED,
    check_tokenizer,
    named_ends,
    read_generation,
)

#: Values that transformers leaves out of config.json where they are its defaults.
_DEFAULTS: Final = {
    "bos_token_id": None,
    "pad_token_id": None,
    "eos_token_id": None,
    "decoder_start_token_id": None,
    "is_encoder_decoder": False,
}
#: Files that add to what tokenizer.json and tokenizer_config.json say.
_ADAPTERS: Final = ("adapter_config.json", "adapter_model.safetensors")
_OLDER: Final = (
    "special_tokens_map.json",
    "added_tokens.json",
    "additional_chat_templates",
    *_ADAPTERS,
)
_NAMED: Final = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
#: What a T5's config calls otherwise; transformers takes these names as well.
_T5_OTHERS: Final = frozenset(
    {"hidden_size", "num_attention_heads", "num_hidden_layers", "head_dim"}
)


def _require_told(settings: dict[str, Any], model_type: str) -> None:
    """Raise a ValueError unless a tokenizer_config.json and tokenizer.json say all of a tokenizer.

    `settings` is the content of tokenizer_config.json. Where they do not, transformers
    adds something of its own.
    """
    is_told = (
        settings.get("backend") == "tokenizers"
        and isinstance(settings.get("extra_special_tokens") or [], list)
        and settings.keys().isdisjoint({"added_tokens_decoder", "chat_template"})
    )
    # Whatever a Qwen2's tokenizer is, transformers makes a Qwen2Tokenizer of its
    # vocabulary.
    if model_type == "qwen2" and settings.get("tokenizer_class") != "Qwen2Tokenizer":
        is_told = False
    for name, value in settings.items():
        is_token = isinstance(value, str) and name.endswith("_token")
        if is_token and name not in _NAMED:
            is_told = False
    if not is_told:
        raise ValueError("transformers says what this tokenizer does")


class FileTokenizer:
    """A tokenizer of tokenizer.json. It has those methods of transformers' tokenizers that generating needs."""

    def __init__(self, folder: Path, model_type: str) -> None:
        """Read the files; a ValueError if the tokenizer has more to it than these files say."""
        settings = json.loads((folder / "tokenizer_config.json").read_bytes())
        _require_told(settings, model_type)
        extra = settings.get("extra_special_tokens") or []
        self.special_tokens_map = {
            name: settings[name] for name in _NAMED if settings.get(name) is not None
        }
        self.all_special_tokens = [*self.special_tokens_map.values(), *extra]
        content = (folder / "tokenizer.json").read_bytes()
        check_content(content)
        self.backend_tokenizer = Tokenizer.from_buffer(content)
        self.backend_tokenizer.no_truncation()
        self.backend_tokenizer.no_padding()
        self.split_special_tokens = False
        self._folder = str(folder)
        self.chat_template: str | None = None
        template = folder / "chat_template.jinja"
        if template.exists():
            self.chat_template = template.read_text(encoding="utf-8")
        self.added_tokens_decoder = self.backend_tokenizer.get_added_tokens_decoder()
        numbers = {
            token: self.backend_tokenizer.token_to_id(token)
            for token in self.all_special_tokens
        }
        if None in numbers.values():
            raise ValueError("a special token has no id")
        self.all_special_ids = list(numbers.values())
        named = {
            name: numbers[token] for name, token in self.special_tokens_map.items()
        }
        self.bos_token_id = named.get("bos_token")
        self.eos_token_id = named.get("eos_token")
        self.unk_token_id = named.get("unk_token")

    def __call__(
        self,
        text: str | Sequence[str],
        *,
        add_special_tokens: bool = True,
        split_special_tokens: bool | None = None,
        verbose: bool = True,
    ) -> dict[str, Any]:
        """The ids of a text, or of each of several texts, under ``input_ids``; called as transformers' tokenizers are.

        With `add_special_tokens` those that the tokenizer puts around a text are among
        them. `split_special_tokens` reads special tokens in a text as text; None is as
        the attribute of that name says. `verbose` does nothing.
        """
        split = (
            self.split_special_tokens
            if split_special_tokens is None
            else split_special_tokens
        )
        self.backend_tokenizer.encode_special_tokens = split
        texts = [text] if isinstance(text, str) else list(text)
        encoded = self.backend_tokenizer.encode_batch(
            texts, add_special_tokens=add_special_tokens
        )
        ids = [each.ids for each in encoded]
        return {"input_ids": ids[0] if isinstance(text, str) else ids}

    def decode(
        self,
        ids: Sequence[int],
        *,
        skip_special_tokens: bool,
        clean_up_tokenization_spaces: bool,
    ) -> str:
        """The text of ids, as it is: only without clean-up."""
        assert not clean_up_tokenization_spaces
        return str(
            self.backend_tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        )

    def get_vocab(self) -> dict[str, int]:
        """All tokens and their ids."""
        return dict(self.backend_tokenizer.get_vocab(with_added_tokens=True))

    def get_chat_template(self) -> str | None:
        """The chat template."""
        return self.chat_template

    @cached_property
    def _transformers(self) -> Any:
        with pretrained.quiet():
            config, _ = pretrained.load_config(self._folder, local=True)
            return pretrained.load_tokenizer(self._folder, config, local=True)

    def __getattr__(self, name: str) -> Any:
        """All other attributes are those of the tokenizer of transformers, such as `apply_chat_template`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._transformers, name)


def _has_older_names(content: dict[str, Any]) -> bool:
    """Whether a config.json says something under an older name, which transformers reads and the kernels' config does not."""
    older = OLDER | (_T5_OTHERS if content["model_type"] in T5.model_types else set())
    rope = content.get("rope_parameters") or {}
    kinds = [rope, *(kind for kind in rope.values() if isinstance(kind, dict))]
    older |= {*QUANTISED}  # of which transformers says the name
    return not older.isdisjoint(content) or any("type" in kind for kind in kinds)


def read_folder(
    folder: Path,
    dtype: torch.dtype,
    computed: torch.dtype,
    files: Sequence[Path] = (),
    weights: Path | None = None,
) -> tuple[BareModel, FileTokenizer, Any] | None:
    """Read a model for the compiled kernels from a folder's own files.

    Returns the model, whose small weights are in `dtype`, the tokenizer, and our
    settings in config.json; None if transformers is needed for something. `computed` is
    the dtype that the kernels are to compute in. The folder of a GGUF model has no
    weights: they are in `files`; those of a folder in the cache are in `weights`,
    another folder.
    """
    try:
        return _read_fitting(folder, dtype, computed, files, weights or folder)
    except Exception:  # whatever does not fit: transformers says it in its words
        return None


def _read_fitting(
    folder: Path,
    dtype: torch.dtype,
    computed: torch.dtype,
    files: Sequence[Path],
    weighty: Path,
) -> tuple[BareModel, FileTokenizer, Any] | None:
    """The model, the tokenizer and our settings of a folder, as in `read_folder`; None, or any error, if something does not fit."""
    content = json.loads((folder / CONFIG).read_bytes())
    config = _config_of(folder, content)
    if not _is_whole(folder, config) or _has_older_names(content):
        return None
    check_config(config)
    if config.is_encoder_decoder and config.decoder_start_token_id is None:
        return None  # generation_config.json may name it
    if not is_compiled(config, computed):
        return None
    tokenizer = FileTokenizer(folder, config.model_type)
    if files:
        mappings = [Mapping(file) for file in files]
        weights = read_weights(folder, mappings, dtype)
        model = BareModel(config, weights, dtype, mappings)
    else:
        model = read_bare(weighty, config, dtype)
    check_whole(model, tokenizer, folder, computed)
    return model, tokenizer, content.get(KEY)


def is_compiled(config: Any, dtype: torch.dtype) -> bool:
    """Whether there are kernels for all of a model of this config, in a dtype."""
    if config.model_type not in COMPILED:
        return False
    return not config.is_encoder_decoder or encoder_dtype(library(), dtype) is not None


def check_whole(
    model: BareModel, tokenizer: Any, folder: Path, dtype: torch.dtype
) -> None:
    """Raise an error unless the kernels can compute a model in a dtype, and the tokenizer is the model's."""
    config: Any = model.config
    check_tokenizer(tokenizer, config.vocab_size, str(folder))
    check_spec(describe(model), library(), dtype)
    if config.is_encoder_decoder:
        check_spec(describe_t5(model.encoder), library(), dtype)


def _config_of(folder: Path, content: dict[str, Any]) -> SimpleNamespace:
    """The `content` of config.json as attributes, with the defaults that transformers leaves out.

    The ends of a text that generation_config.json names are added.
    """
    generation: Path | None = folder / GENERATION
    if not (folder / GENERATION).exists():
        generation = None
    ends = named_ends(content, read_generation(generation))
    return SimpleNamespace(**_DEFAULTS | content | ends)


def _is_whole(folder: Path, config: SimpleNamespace) -> bool:
    """Whether transformers 5 wrote the folder, and no file adds to the usual ones."""
    if not config.transformers_version.startswith("5."):
        return False
    return not any((folder / name).exists() for name in _OLDER)
