"""Checkpoints: a folder that plain transformers loads, with the method's settings inside its config.json."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final, Literal

import msgspec
import torch
from msgspec import Meta, Struct

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import DecoderKind, Segmentation
from pipedec_cli.data.segmentation import Segmenter
from pipedec_cli.data.workspace import save_segmenter, segmenter_of
from pipedec_cli.model.text import TextCodec

FAMILIES: Final = ("t5", "mt5", "umt5")
#: The key in config.json under which the method's settings stand.
SETTINGS_KEY: Final = "pipedec"
#: Δt of a checkpoint that serves any.
_DEFAULT_DELAY: Final = 2

Positive = Annotated[int, Meta(ge=1)]


class MethodSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What a checkpoint was trained for, and what decoding it must do alike.

    Attributes:
        decoder: ``pipelined``, or ``sequential`` for the ordinary T5.
        delay: Δt in time-steps, or ``any`` after training over random schedules; of no meaning for ``sequential``.
        segmentation: how the targets were split; its joiner puts predictions together again.
        source_prefix: put before every source.
        max_source_tokens: longer sources are cut to this many.
        time_max: the last time-step that decoding allows by default.
    """

    decoder: DecoderKind
    delay: Positive | Literal["any"]
    segmentation: Segmentation
    source_prefix: str = ""
    max_source_tokens: Positive = 2048
    time_max: Positive = 50

    @property
    def sub_max(self) -> int:
        """The bound on subsequences that the targets were merged for."""
        return self.segmentation.sub_max

    @property
    def usual_delay(self) -> int:
        """Δt where none is asked for: as trained, 2 if trained for any."""
        return _DEFAULT_DELAY if self.delay == "any" else self.delay

    def to_json(self) -> dict[str, Any]:
        """As it stands in config.json."""
        return dict(msgspec.to_builtins(self))

    @classmethod
    def from_json(cls, content: dict[str, Any], where: str) -> MethodSettings:
        """Read back what `to_json` wrote.

        Raises:
            UserError: a setting is missing or is not one of this version's.
        """
        try:
            return msgspec.convert(content, cls)
        except msgspec.ValidationError as error:
            raise UserError(
                f"the settings under {SETTINGS_KEY!r} are not of this version ({error})",
                where=where,
                todo="train the checkpoint anew, or use the version that wrote it",
            ) from error


@dataclass(slots=True)
class Checkpoint:
    """A model with its tokenizer and settings.

    Attributes:
        model: a T5ForConditionalGeneration (or mT5, UMT5) in evaluation mode.
        tokenizer: its tokenizer.
        settings: what it was trained for; None for one that this tool has not trained.
        name: the folder or hub name it came from.
        segmenter: cuts a whole text as the training targets were cut, for a sequential decoder's output; None
            where that is not known.
    """

    model: Any
    tokenizer: Any
    settings: MethodSettings | None
    name: str
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    segmenter: Segmenter | None = None

    @property
    def bos(self) -> int:
        """The id that opens a subsequence: the model's decoder_start_token."""
        start = self.model.config.decoder_start_token_id
        return int(self.model.config.pad_token_id if start is None else start)

    @property
    def eos(self) -> int:
        """The id that ends a subsequence or a source."""
        eos = self.model.config.eos_token_id
        return int(eos[0] if isinstance(eos, list) else eos)

    def codec(self, settings: MethodSettings | None = None) -> TextCodec:
        """Texts to ids as this checkpoint wants them."""
        used = settings or self.settings
        prefix, limit = (used.source_prefix, used.max_source_tokens) if used else ("", 2048)
        return TextCodec(self.tokenizer, prefix=prefix, max_source_tokens=limit, eos=self.eos)


def load_checkpoint(name: str, *, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Checkpoint:
    """Load a local folder or a hub model. A local path never calls the hub.

    Args:
        name: the folder, or a hub name such as ``google-t5/t5-base``.
        dtype: of the weights; transformers keeps ``wo`` in float32 under float16.
        device: ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        UserError: nothing is there, it is no T5, or its files cannot be read.
    """
    from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer

    local = name != "" and Path(name).is_dir()
    if not local and (name.count("/") != 1 or name.startswith((".", "/", "~"))):
        raise UserError(
            f"no checkpoint folder {name!r}", todo="give a folder that `pipedec train` made or a hub name"
        )
    with _quiet(), _explained(name):
        config = AutoConfig.from_pretrained(name, local_files_only=local)
        if config.model_type not in FAMILIES:
            raise UserError(
                f"{name} is a {config.model_type!r} model, not a T5",
                todo=f"use a checkpoint of one of these families: {', '.join(FAMILIES)}",
            )
        tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local)
        if len(tokenizer.get_vocab()) - len(tokenizer.all_special_tokens) <= 1:
            # Where there are no files, transformers makes one up that knows nothing but the special tokens.
            raise ValueError("it has no tokenizer")
        model, info = AutoModelForSeq2SeqLM.from_pretrained(
            name, local_files_only=local, dtype=dtype, output_loading_info=True
        )
        if info["missing_keys"]:  # transformers would go on with fresh weights in their place
            raise ValueError(f"its weights lack {', '.join(sorted(info['missing_keys'])[:3])}")
    content = getattr(config, SETTINGS_KEY, None)
    settings = MethodSettings.from_json(content, f"{name}/config.json") if content else None
    segmenter = segmenter_of(settings.segmentation, Path(name)) if settings and local else None
    return Checkpoint(model.eval().to(device), tokenizer, settings, name, torch.device(device), segmenter)


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Write config.json, generation_config.json, model.safetensors, the tokenizer's files and sentences.json.

    They take their names when all of them have been written: what fails on the way leaves the folder as it was.
    """
    assert checkpoint.settings is not None, "a checkpoint is saved with the settings it was trained under"
    setattr(checkpoint.model.config, SETTINGS_KEY, checkpoint.settings.to_json())
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".unfinished-") as unfinished:
        with _quiet():
            checkpoint.model.save_pretrained(unfinished)
            checkpoint.tokenizer.save_pretrained(unfinished)
        if checkpoint.segmenter is not None:
            save_segmenter(Path(unfinished), checkpoint.segmenter)
        for file in Path(unfinished).iterdir():
            file.replace(folder / file.name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' own bars and notes off the terminal: loading is announced by the command that asks for it."""
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


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn the many ways in which loading fails, in several libraries, into one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = str(error).strip().splitlines()
        raise UserError(
            f"cannot load the checkpoint {name}: {reason[0] if reason else type(error).__name__}",
            todo="check that the folder is whole, or that the hub name is right and can be reached",
        ) from error
