"""Checkpoints: a folder that plain transformers loads, with the method's settings inside its config.json."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final, Literal

import msgspec
import torch
from msgspec import Meta, Struct

from pipedec_cli.data.errors import UserError, first_line, is_out_of_space
from pipedec_cli.data.model_files import ADAPTER_FILES
from pipedec_cli.data.reading import as_json, contents, mended
from pipedec_cli.data.records import DecoderKind, Segmentation
from pipedec_cli.data.segmentation import Segmenter
from pipedec_cli.data.trained import UNFINISHED, is_gguf, require_model
from pipedec_cli.data.workspace import load_segmenter, save_segmenter
from pipedec_cli.data.writing import file_sha256
from pipedec_cli.model import lora
from pipedec_cli.model.arguments import STORED
from pipedec_cli.model.engine.native.library import BuildError
from pipedec_cli.model.families import Backbone, backbone_of, ends_of
from pipedec_cli.model.files import read_folder
from pipedec_cli.model.foreign import read_foreign
from pipedec_cli.model.gguf import content_sha256, loadable, local_files
from pipedec_cli.model.pretrained import (
    CONFIG,
    GENERATION,
    KEY,
    load_pretrained,
    named_ends,
    quiet,
    read_generation,
)
from pipedec_cli.model.text import (
    PROMPT,
    SOURCE,
    Prompt,
    TextCodec,
    ids_around,
    language_id,
    prompt_around,
    text_end,
)
from pipedec_cli.pipeline.grid import EmptyRows
from pipedec_cli.pipeline.schedule import USUAL_DELAY

#: Long messages of transformers and torch, by a word in them, in short. These are plain
#: RuntimeErrors and ValueErrors: nothing but their words tells them apart.
_WORDS: Final = {
    "ignore_mismatched_sizes": "its weights are not of the sizes in config.json",
    "trust_remote_code": "it wants to run code of its own, which pipedec never does",
    "PytorchStreamReader": "its .bin file is cut short or damaged",
}

#: Files that do not change what is generated: logs and manifests of the training, and
#: transformers' decoding defaults.
_WITHOUT_EFFECT: Final = frozenset({GENERATION, "trainer_state.json", "training.json"})
_WITH_EFFECT: Final = frozenset(
    {".bin", ".jinja", ".json", ".model", ".safetensors", ".txt"}
)

Positive = Annotated[int, Meta(ge=1, le=1_000_000)]


class MethodSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What a checkpoint was trained for, and the defaults of decoding it. It stands in config.json.

    The delay is Δt in time-steps, ``any`` after training over random schedules, or
    ``together`` for fields without lists of objects; it has no meaning for a sequential
    model.
    """

    decoder: DecoderKind
    delay: Positive | Literal["any", "together"]
    segmentation: Segmentation  # its joiner puts predictions together again
    source_prefix: str = ""
    prompt: str = PROMPT  # of a decoder-only model: the template around a source
    chat: bool = False  # whether the prompt stands in the model's chat template
    max_source_tokens: Positive = 2048
    time_max: Positive = 50  # the last time-step
    item_max: Positive = (
        20  # the most items of a list of objects, with the empty one that closes it
    )
    empty_rows: EmptyRows = "retry"
    stop_on_repeat: bool = False

    @property
    def usual_delay(self) -> int:
        """Δt where none is asked for: as trained, if it was trained for one."""
        return self.delay if isinstance(self.delay, int) else USUAL_DELAY


#: The settings of a checkpoint that this tool has not trained: a sequential model.
PLAIN: Final = MethodSettings("sequential", "any", Segmentation("sentence", (), " "))


@dataclass(slots=True)
class Checkpoint:
    """A model in evaluation mode, with its tokenizer and the folder or hub name that it came from.

    The settings are None if this tool has not trained it. The segmenter, where it is
    known, cuts a whole text as the training targets were cut.
    """

    model: Any
    tokenizer: Any
    settings: MethodSettings | None
    name: str
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    segmenter: Segmenter | None = None
    #: The first of its `ends`, if it is not the first that its files name: in a chat
    #: the end of a turn.
    main_end: int | None = None
    #: Whether only some weights were trained. The others are saved in 16 bits, if their
    #: files held them so.
    is_partly_trained: bool = False

    @property
    def backbone(self) -> Backbone:
        """The model's family."""
        return backbone_of(self.model.config)

    @property
    def opener(self) -> int:
        """The id that opens a subsequence."""
        return self.backbone.opener(self.model.config)

    @property
    def bos(self) -> int | None:
        """The id that opens a text; None if a sequential decoder-only model goes on behind its prompt."""
        sequential = (self.settings or PLAIN).decoder == "sequential"
        return None if sequential and self.backbone.prompted else self.opener

    @property
    def first(self) -> int | None:
        """The token that every text of an encoder-decoder from elsewhere begins with, such as its language; None if there is none."""
        if self.settings is not None or self.backbone.prompted:
            return None
        if hasattr(type(self.tokenizer), "src_lang") and (
            target := self.tokenizer.tgt_lang
        ):
            return language_id(self.tokenizer, target)
        return getattr(
            getattr(self.model, "generation_config", None), "forced_bos_token_id", None
        )

    @property
    def eos(self) -> int:
        """The id that ends a source, and each subsequence that is learnt."""
        return self.ends[0]

    @eos.setter
    def eos(self, token: int) -> None:
        self.main_end = token

    @property
    def ends(self) -> tuple[int, ...]:
        """All ids that end a subsequence, `eos` first. None of them is a part of a text."""
        named = ends_of(self.model.config)
        main = named[0] if self.main_end is None else self.main_end
        return main, *(end for end in named if end != main)

    @property
    def positions(self) -> int | None:
        """The number of positions that a decoder-only model was made for; None if there is no such number."""
        return (
            getattr(self.model.config, "max_position_embeddings", None)
            if self.backbone.prompted
            else None
        )

    @property
    def places(self) -> int | None:
        """The most tokens of a source where positions are looked up in a table, or turn in another way beyond a length."""
        config = self.model.config
        rope = getattr(self.model.config, "rope_parameters", None) or {}
        most = rope.get("original_max_position_embeddings") or getattr(
            config, "max_position_embeddings", None
        )
        return (
            most
            if self.backbone.learned or rope.get("rope_type") in ("dynamic", "longrope")
            else None
        )

    @property
    def together(self) -> bool:
        """Whether it writes fields: one row for each, all at the same time."""
        used = self.settings or PLAIN
        own_rows = used.decoder == "pipelined" or used.delay == "together"
        return own_rows and bool(used.segmentation.fields)

    def codec(self) -> TextCodec:
        """The codec of texts and ids, as this checkpoint was trained with it."""
        used = self.settings or PLAIN
        prompt = (
            self.prompt(used.prompt, chat=used.chat) if self.backbone.prompted else None
        )
        around = (
            self._known(*ids_around(self.tokenizer)) if self.backbone.framed else None
        )
        how = (used.source_prefix, used.max_source_tokens, self.eos, prompt)
        return TextCodec(self.tokenizer, *how, around=around, places=self.places)

    def prompt(self, template: str, *, chat: bool) -> Prompt:
        """The prompt that a template makes; a UserError if the template does not fit."""
        prompt = prompt_around(self.tokenizer, template, chat=chat)
        self._known(TextCodec(self.tokenizer, "", 0, self.eos).prompted(prompt, ""), [])
        return prompt

    def prefix(self, template: str | None, *, chat: bool | None) -> str:
        """What a template puts before the sources of an encoder; a UserError for a text behind them, and for a chat."""
        before, source, behind = (template or SOURCE).partition(SOURCE)
        if source and not behind and chat is None:
            return before
        kind = self.backbone.name
        more = "a chat" if chat is not None else "more text"
        what = f"{self.name} is a {kind}, whose encoder reads the source: it takes no {more}"
        todo = f"leave --chat out, and end --prompt-template in {SOURCE}"
        raise UserError(what, todo=todo)

    def _known(self, head: list[int], tail: list[int]) -> tuple[list[int], list[int]]:
        """The same ids around a source, if all are in the model's vocabulary; else a UserError."""
        if (largest := max([*head, *tail], default=0)) >= self.model.config.vocab_size:
            what = f"a token with the id {largest} stands around a source, and the model does not know it"
            raise UserError(
                what,
                where=self.name,
                todo="use another template, or take another model",
            )
        return head, tail

    def end_as_usual(self, *, chat: bool | None = None) -> None:
        """Let a decoder-only model from elsewhere end its texts as its tokenizer says, in a `chat` also with a turn.

        `chat` is as the settings say by default. Other models stay as they are.
        """
        if self.backbone.prompted:
            chat = (self.settings or PLAIN).chat if chat is None else chat
            self.eos = text_end(self.tokenizer, ends_of(self.model.config), chat=chat)


def fingerprint(checkpoint: Checkpoint) -> str | None:
    """The SHA-256 of a folder's weights, configuration and tokenizer, or of a GGUF file; the commit of a hub model, if it is known.

    It does not depend on where the folder lies. Folders inside it, such as a training's
    ``checkpoint-N``, do not count.
    """
    folder = Path(checkpoint.name)
    if is_gguf(folder):
        return content_sha256(local_files(checkpoint.name))
    if not folder.is_dir():
        return getattr(checkpoint.model.config, "_commit_hash", None)
    skipped = _WITHOUT_EFFECT
    digest = hashlib.sha256()
    if _is_completed(folder):
        skipped -= {GENERATION}
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.suffix in _WITH_EFFECT and file.name not in skipped:
            digest.update(f"{file.name} {file_sha256(file)}\n".encode())
    return digest.hexdigest()


def _is_completed(folder: Path) -> bool:
    """Whether a folder's generation_config.json names what opens a text, or what ends it, and config.json does not."""
    config = contents(folder / CONFIG)
    generation = folder / GENERATION
    if b'"decoder_start_token_id"' not in config:
        return True
    return generation.exists() and bool(
        named_ends(as_json(config, CONFIG), read_generation(generation))
    )


def load_checkpoint(
    name: str,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    computed: torch.dtype | None = None,
) -> Checkpoint:
    """Load a local folder, a GGUF file or a hub model; a UserError says why it cannot be loaded. A local path never calls the hub.

    If nothing but the compiled kernels is to compute it, in the dtype `computed`, the
    model may be a `BareModel`.
    """
    local = require_model(name) or is_gguf(name)
    model, tokenizer, content = _read_files(name, dtype, computed, local=local)
    settings = _settings_of(content, f"{name}/{CONFIG}")
    segmenter = None
    if settings and local:
        segmenter = load_segmenter(Path(name), settings.segmentation)
    where = torch.device(device)
    checkpoint = Checkpoint(
        model.eval().to(where), tokenizer, settings, name, where, segmenter
    )
    if settings is None:
        checkpoint.end_as_usual()
    return checkpoint


def _read_files(
    name: str, dtype: torch.dtype, computed: torch.dtype | None, *, local: bool
) -> Any:
    """The model, the tokenizer, and our settings as they stand in config.json; see `load_checkpoint`."""
    try:
        if local and computed:
            bare = _read_bare(name, dtype, computed)
            if bare is not None:
                return bare
        if computed == STORED:
            raise BuildError("its blocks are of a kind that is not computed here")
        return load_pretrained(loadable(name), dtype, local=local)
    except (UserError, BuildError, KeyboardInterrupt):
        raise
    except BaseException as error:  # several libraries raise what they like; a panic in Rust is no Exception
        if isinstance(error, OSError) and is_out_of_space(error):
            raise
        what = f"cannot load the checkpoint {name}: {_reason(error)}"
        todo = "check that the folder is whole, or that the hub name is right and can be reached"
        raise UserError(what, todo=todo) from error


def _settings_of(content: Any, where: str) -> MethodSettings | None:
    """Our settings in a config.json; None if it has none, as a model has that was not trained here."""
    if content is None:
        return None
    try:
        return msgspec.convert(mended(content), MethodSettings)
    except msgspec.ValidationError as error:
        what = f"the settings under {KEY!r} are not of this version ({error})"
        todo = "train the checkpoint anew, or use the version that wrote it"
        raise UserError(what, where=where, todo=todo) from error


def _reason(error: BaseException) -> str:
    """Why a library could not load a model, in short."""
    if isinstance(error, KeyError | EOFError):  # whose text is a key, or nothing
        return "one of its files is damaged, or not what its name says"
    if type(error).__module__ == "_pickle":  # it is never imported here
        return "its .bin file holds more than weights, which is never run; save model.safetensors"
    for key, words in _WORDS.items():
        if key in str(error):
            return words
    return first_line(error).removesuffix(".")


def _read_bare(name: str, dtype: torch.dtype, computed: torch.dtype) -> Any:
    """The model, tokenizer and settings without transformers; None if it is needed."""
    if not is_gguf(name):
        folder = Path(name)
        return read_folder(folder, dtype, computed) or read_foreign(
            folder, dtype, computed
        )
    folder = Path(loadable(name, is_bare=True))
    return read_folder(folder, dtype, computed, local_files(name))


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Write config.json, model.safetensors or adapters, the tokenizer's files and sentences.json.

    A folder is a model if it holds config.json: this file is deleted first and written
    last.
    """
    assert checkpoint.settings is not None, (
        "a checkpoint is saved with the settings it was trained under"
    )
    import transformers

    model = checkpoint.model
    setattr(model.config, KEY, msgspec.to_builtins(checkpoint.settings))
    model.config.eos_token_id = (
        checkpoint.eos if len(checkpoint.ends) == 1 else [*checkpoint.ends]
    )
    # The base's own sampling does not fit what was trained: `generate` is greedy and
    # ends as the config says.
    model.generation_config = transformers.GenerationConfig.from_model_config(
        model.config
    )
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=UNFINISHED) as unfinished:
        written = Path(unfinished)
        with quiet():
            if lora.adapted(model):
                model.config.save_pretrained(written)
                lora.save_adapters(model, written)
            else:
                weights = _as_stored(model) if checkpoint.is_partly_trained else None
                model.save_pretrained(written, state_dict=weights)
            checkpoint.tokenizer.save_pretrained(written)
        if checkpoint.segmenter is not None:
            save_segmenter(written, checkpoint.segmenter)
        mode = (
            (written / CONFIG).stat().st_mode
        )  # safetensors lets only the owner read its file
        (folder / CONFIG).unlink(missing_ok=True)
        # Older weights of another kind, or in several files, would be taken for a part
        # of these.
        for other in (*folder.glob("*.safetensors*"), *folder.glob(ADAPTER_FILES)):
            other.unlink(missing_ok=True)
        for file in sorted(written.iterdir(), key=lambda file: file.name == CONFIG):
            file.chmod(mode)
            file.replace(folder / file.name)


def _as_stored(model: Any) -> dict[str, torch.Tensor]:
    """The weights of a model, in bfloat16 those whose numbers it holds, all others as they are. Tied ones stay one."""
    narrow = dict[int, torch.Tensor]()  # by address
    weights = model.state_dict()
    for weight in weights.values():
        place = weight.data_ptr()
        if place not in narrow:
            is_exact = weight.dtype == torch.float32 and _is_bfloat16(weight)
            narrow[place] = weight.bfloat16() if is_exact else weight
    return {name: narrow[weight.data_ptr()] for name, weight in weights.items()}


def _is_bfloat16(weight: torch.Tensor) -> bool:
    """Whether float32 numbers end in 16 bits that are 0, as those that were bfloat16."""
    words = weight.detach().reshape(-1).view(torch.int32)
    return all(not (some & 0xFFFF).any() for some in torch.split(words, 1 << 20))
