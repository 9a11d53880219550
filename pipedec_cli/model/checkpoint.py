"""Checkpoints: a folder that plain transformers loads, with the method's settings inside its config.json."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final, Literal

import msgspec
import torch
from msgspec import Meta, Struct

from pipedec_cli.data.checking import mended
from pipedec_cli.data.errors import UserError, first_line
from pipedec_cli.data.records import DecoderKind, Segmentation
from pipedec_cli.data.segmentation import Segmenter
from pipedec_cli.data.trained import ADAPTER, UNFINISHED, require_model
from pipedec_cli.data.workspace import load_segmenter, save_segmenter
from pipedec_cli.model.backbone import OPENERS, Backbone, eos_of
from pipedec_cli.model.engine.native.bare import bare_model
from pipedec_cli.model.families import FAMILIES, backbone_of
from pipedec_cli.model.text import PROMPT, Prompt, TextCodec, ids_around, prompt_around, text_end
from pipedec_cli.model.training import lora
from pipedec_cli.pipeline.grid import EmptyRows

_CONFIG: Final = "config.json"
_KEY: Final = "pipedec"  # of the method's settings in config.json

#: What transformers says in many words, and here in few.
_WORDS: Final = {
    "ignore_mismatched_sizes": "its weights are not of the sizes in config.json",
    "trust_remote_code": "it wants to run code of its own, which pipedec never does",
}

#: A tokenizer that is not what it should be fails at a text, here a letter and a character that none knows.
_TRIAL: Final = "a \U0010fffd"

Positive = Annotated[int, Meta(ge=1, le=1_000_000)]


class MethodSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What a checkpoint was trained for, and what decoding it must do alike; it stands in config.json.

    The delay is Δt, ``any`` after training over random schedules, or ``together`` for fields; it has no meaning for
    ``sequential``. The
    segmentation's joiner puts predictions together again; time_max is the last time-step; `empty_rows` and
    `stop_on_repeat` are the rules where none are asked for.
    """

    decoder: DecoderKind
    delay: Positive | Literal["any", "together"]
    segmentation: Segmentation
    source_prefix: str = ""
    prompt: str = PROMPT  # of a decoder-only model: what stands around a source
    chat: bool = False  # within its chat template
    max_source_tokens: Positive = 2048
    time_max: Positive = 50
    empty_rows: EmptyRows = "retry"
    stop_on_repeat: bool = False

    @property
    def usual_delay(self) -> int:
        """Δt where none is asked for: as trained, 2 if trained for any."""
        return self.delay if isinstance(self.delay, int) else 2


#: The settings of a checkpoint that this tool has not trained: those of an ordinary model.
PLAIN: Final = MethodSettings("sequential", "any", Segmentation("sentence", (), " "))


@dataclass(slots=True)
class Checkpoint:
    """A model of one of the `backbones`, in evaluation mode, with its tokenizer and the folder or hub name it came from.

    The settings are None for one that this tool has not trained. The segmenter, where it is known, cuts a whole text
    as the training targets were cut, for a sequential decoder's output.
    """

    model: Any
    tokenizer: Any
    settings: MethodSettings | None
    name: str
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    segmenter: Segmenter | None = None

    @property
    def backbone(self) -> Backbone:
        """The model's family."""
        return backbone_of(self.model.config)

    @property
    def opener(self) -> int:
        """The id that opens a subsequence of a grid."""
        return self.backbone.opener(self.model.config)

    @property
    def bos(self) -> int | None:
        """The id that opens what is written; None where a plain decoder-only model goes on behind its prompt."""
        plain = self.settings is None or self.settings.decoder == "sequential"
        return None if plain and self.backbone.prompted else self.opener

    @property
    def eos(self) -> int:
        """The id that ends a subsequence or a source."""
        return eos_of(self.model.config)

    @eos.setter
    def eos(self, token: int) -> None:
        self.model.config.eos_token_id = token

    @property
    def positions(self) -> int | None:
        """How many a decoder-only model was made for, if it says so: prompt and text go beyond them at a risk."""
        prompted = self.backbone.prompted
        return getattr(self.model.config, "max_position_embeddings", None) if prompted else None

    @property
    def places(self) -> int | None:
        """How many tokens a source can have, where an encoder looks their places up in a table."""
        return self.model.config.max_position_embeddings if self.backbone.learned else None

    @property
    def together(self) -> bool:
        """Whether it writes fields: a row for each, all of them at the same time."""
        used = self.settings
        return used is not None and used.delay == "together" and bool(used.segmentation.fields)

    def codec(self) -> TextCodec:
        """Texts to ids as this checkpoint wants them."""
        used = self.settings or PLAIN
        prompt = self.prompt(used.prompt, chat=used.chat) if self.backbone.prompted else None
        around = self._known(*ids_around(self.tokenizer)) if self.backbone.framed else None
        how = (used.source_prefix, used.max_source_tokens, self.eos, prompt)
        return TextCodec(self.tokenizer, *how, around=around, places=self.places)

    def prompt(self, template: str, *, chat: bool) -> Prompt:
        """What stands around a source; a UserError if there is no prompt, or it cannot be made so."""
        if not self.backbone.prompted:
            what = (
                f"{self.name} is a {self.backbone.name}, whose encoder reads the source: there is no prompt"
            )
            raise UserError(what, todo="use --source-prefix, or leave --prompt-template and --chat out")
        prompt = prompt_around(self.tokenizer, template, chat=chat)
        self._known(prompt.head, prompt.tail)
        return prompt

    def _known(self, head: list[int], tail: list[int]) -> tuple[list[int], list[int]]:
        """What stands around a source, if the model knows all of it; else a UserError."""
        if (largest := max([*head, *tail], default=0)) >= self.model.config.vocab_size:
            what = f"a token with the id {largest} stands around a source, and the model does not know it"
            raise UserError(what, where=self.name, todo="ask it in another template, or take another model")
        return head, tail

    def end_as_usual(self, *, chat: bool | None = None) -> None:
        """Have the texts of a decoder-only model from elsewhere end where it ends them, in a `chat` a turn.

        Where that is None it is as the settings say.
        """
        if self.backbone.prompted:
            chat = (self.settings or PLAIN).chat if chat is None else chat
            self.eos = text_end(self.tokenizer, self.eos, chat=chat)


def load_checkpoint(
    name: str,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    bare: Callable[[Any], bool] | None = None,
) -> Checkpoint:
    """Load a local folder or a hub model, or say in a UserError why not. A local path never calls the hub.

    Where `bare`, of its config, says so, the model may be its weights alone: a `BareModel`.
    """
    local = require_model(name)
    try:
        with _quiet():
            model, tokenizer, content = _load(name, dtype, local, bare)
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # whatever several libraries raise; a panic in Rust is no Exception
        reason = next((words for key, words in _WORDS.items() if key in str(error)), first_line(error))
        todo = "check that the folder is whole, or that the hub name is right and can be reached"
        raise UserError(f"cannot load the checkpoint {name}: {reason}", todo=todo) from error
    try:
        settings = None if content is None else msgspec.convert(mended(content), MethodSettings)
    except msgspec.ValidationError as error:
        what = f"the settings under {_KEY!r} are not of this version ({error})"
        todo = "train the checkpoint anew, or use the version that wrote it"
        raise UserError(what, where=f"{name}/config.json", todo=todo) from error
    segmenter = load_segmenter(Path(name), settings.segmentation) if settings and local else None
    checkpoint = Checkpoint(
        model.eval().to(device), tokenizer, settings, name, torch.device(device), segmenter
    )
    if settings is None:
        checkpoint.end_as_usual()
    return checkpoint


def _load(
    name: str, dtype: torch.dtype, local: bool, bare: Callable[[Any], bool] | None
) -> tuple[Any, Any, Any]:
    """The model, the tokenizer, and what stands under our key in config.json. No code of the checkpoint's own is run."""
    import transformers

    config, content = _config(name, local)
    base = lora.base_of(Path(name)) if local else None
    options = {"config": config, "local_files_only": local, "trust_remote_code": False}
    tokenizer = transformers.AutoTokenizer.from_pretrained(name, **options)
    vocabulary = tokenizer.get_vocab()
    if len(vocabulary) - len(tokenizer.all_special_tokens) <= 1:
        # Where there are no files, transformers makes one up that knows nothing but the special tokens.
        raise ValueError("it has no tokenizer")
    trial = TextCodec(tokenizer, "", 8, 0)
    trial.decode(trial.ids([_TRIAL])[0])
    # Special tokens, which no text becomes, may go beyond the weights: BART's <mask>, or Gemma 3's of images.
    never = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    if (largest := max({*vocabulary.values()} - never | {tokenizer.unk_token_id or 0})) >= config.vocab_size:
        what = f"the tokenizer has ids up to {largest}, vocab_size in config.json is {config.vocab_size}"
        raise UserError(what, where=name, todo="take the tokenizer that the weights were trained with")
    if bare and local and not base and bare(config) and (model := bare_model(Path(name), config, dtype)):
        return model, tokenizer, content
    made = getattr(transformers, backbone_of(config).auto_class).from_pretrained
    model, info = made(str(base or name), **options, dtype=dtype, output_loading_info=True)
    if info["missing_keys"]:  # transformers would go on with fresh weights in their place
        raise ValueError(f"its weights lack {', '.join(sorted(info['missing_keys'])[:3])}")
    if unused := sorted(key for key in info["unexpected_keys"] if re.search(r"\.\d+\.", key)):
        raise ValueError(f"its weights have layers that config.json does not count, as {unused[0]}")
    if base:
        lora.apply_adapter(model, Path(name))
    return model, tokenizer, content


def _config(name: str, local: bool) -> tuple[Any, Any]:
    """The family's configuration, of what its schema knows and nothing else, and what stands under our key."""
    import transformers

    raw, _ = transformers.PreTrainedConfig.get_config_dict(name, local_files_only=local)
    if (kind := raw.get("model_type")) is None:
        raise ValueError("its config.json names no model_type")
    if kind not in FAMILIES:
        todo = f"use a checkpoint of one of these families: {', '.join(FAMILIES)}"
        raise UserError(f"{name} is a {kind!r} model, which is not supported", todo=todo)
    given = {**transformers.AutoConfig.for_model(kind).to_dict(), **raw}
    encoded = not FAMILIES[kind].prompted
    if encoded and given.get(OPENERS[0]) is None:
        with suppress(OSError):  # there need not be one
            made = transformers.GenerationConfig.from_pretrained(name, local_files_only=local)
            given[OPENERS[0]] = made.decoder_start_token_id
        named = (given.get(name) for name in OPENERS)
        given[OPENERS[0]] = next((one for one in named if one is not None), None)
    try:
        checked = msgspec.to_builtins(msgspec.convert(given, FAMILIES[kind].config))
    except msgspec.ValidationError as error:
        what, todo = f"no {kind} can be built of it: {error}", "take the file that belongs to the weights"
        raise UserError(what, where=f"{name}/config.json", todo=todo) from error
    settled = {key: value for key, value in checked.items() if key in {*raw, OPENERS[0]}}
    config = transformers.AutoConfig.for_model(kind, **settled, _commit_hash=raw.get("_commit_hash"))
    return config, raw.get(_KEY)


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Write config.json, model.safetensors or an adapter, the tokenizer's files and sentences.json.

    A folder without config.json is no model: it goes first and comes last.
    """
    assert checkpoint.settings is not None, "a checkpoint is saved with the settings it was trained under"
    import transformers

    setattr(checkpoint.model.config, _KEY, msgspec.to_builtins(checkpoint.settings))
    # How the base sampled and where it ended says nothing of what was trained: its `generate` is to be greedy, to this eos.
    made = transformers.GenerationConfig.from_model_config(checkpoint.model.config)
    checkpoint.model.generation_config = made
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=UNFINISHED) as unfinished:
        with _quiet():
            if lora.has_adapters(checkpoint.model):
                checkpoint.model.config.save_pretrained(unfinished)
                lora.save_adapter(checkpoint.model, checkpoint.name, Path(unfinished))
            else:
                checkpoint.model.save_pretrained(unfinished)
            checkpoint.tokenizer.save_pretrained(unfinished)
        if checkpoint.segmenter is not None:
            save_segmenter(Path(unfinished), checkpoint.segmenter)
        mode = (Path(unfinished) / _CONFIG).stat().st_mode  # safetensors' own is for the owner alone
        (folder / _CONFIG).unlink(missing_ok=True)
        # Weights of another kind, or in parts, would be taken for some of this one's.
        for other in (*folder.glob("*.safetensors*"), folder / ADAPTER):
            other.unlink(missing_ok=True)
        for file in sorted(Path(unfinished).iterdir(), key=lambda file: file.name == _CONFIG):
            file.chmod(mode)
            file.replace(folder / file.name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' own bars and notes off the terminal: the command says what is loaded."""
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
