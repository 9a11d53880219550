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
from pipedec_cli.model.hub import snapshot
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
    questions: bool = False  # whether it was taught to answer blind rows

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
        """The token that every text of a model begins with, such as its language; None if there is none.

        Only an encoder-decoder that pipedec has not trained has one.
        """
        if self.settings is not None or self.backbone.prompted:
            return None
        if hasattr(type(self.tokenizer), "src_lang") and self.tokenizer.tgt_lang:
            return language_id(self.tokenizer, self.tokenizer.tgt_lang)
        generation = getattr(self.model, "generation_config", None)
        return getattr(generation, "forced_bos_token_id", None)

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
        if not self.backbone.prompted:
            return None
        return getattr(self.model.config, "max_position_embeddings", None)

    @property
    def places(self) -> int | None:
        """The most tokens that a source may have, because of its positions; None if these set no bound.

        They do where positions are looked up in a table, and where a rotary embedding
        turns in another way beyond a length.
        """
        config = self.model.config
        rope = getattr(config, "rope_parameters", None) or {}
        if self.backbone.learned or rope.get("rope_type") in ("dynamic", "longrope"):
            most = getattr(config, "max_position_embeddings", None)
            return rope.get("original_max_position_embeddings") or most
        return None

    @property
    def together(self) -> bool:
        """Whether it writes fields: one row for each, all at the same time."""
        used = self.settings or PLAIN
        own_rows = used.decoder == "pipelined" or used.delay == "together"
        return own_rows and bool(used.segmentation.fields)

    @property
    def questions(self) -> bool:
        """Whether it was taught to answer questions, each by itself: blind rows."""
        return self.settings is not None and self.settings.questions

    def codec(self) -> TextCodec:
        """The codec of texts and ids, as this checkpoint was trained with it."""
        used = self.settings or PLAIN
        prompt = None
        if self.backbone.prompted:
            prompt = self.prompt(used.prompt, chat=used.chat)
        around = None
        if self.backbone.framed:
            around = ids_around(self.tokenizer)
            self._require_known([*around[0], *around[1]])
        return TextCodec(
            self.tokenizer,
            used.source_prefix,
            used.max_source_tokens,
            self.eos,
            prompt,
            around=around,
            places=self.places,
        )

    def prompt(self, template: str, *, chat: bool) -> Prompt:
        """The prompt that a template makes; a UserError if the template does not fit."""
        prompt = prompt_around(self.tokenizer, template, chat=chat)
        codec = TextCodec(self.tokenizer, "", 0, self.eos)
        self._require_known(codec.prompted(prompt, ""))
        return prompt

    def prefix(self, template: str | None, *, chat: bool | None) -> str:
        """The text that a template puts before the sources of a model with an encoder; "" without a template.

        A UserError for a template with text behind the source, and for a `chat` that is
        true or false rather than None: an encoder reads a source alone.
        """
        before, source, behind = (template or SOURCE).partition(SOURCE)
        if source and not behind and chat is None:
            return before
        kind = self.backbone.name
        more = "a chat" if chat is not None else "more text"
        what = f"{self.name} is a {kind}, whose encoder reads the source: it takes no {more}"
        todo = f"leave --chat out, and end --prompt-template in {SOURCE}"
        raise UserError(what, todo=todo)

    def _require_known(self, ids: list[int]) -> None:
        """Raise a UserError if ids that stand around a source are not in the model's vocabulary."""
        largest = max(ids, default=0)
        if largest >= self.model.config.vocab_size:
            what = f"a token with the id {largest} stands around a source, and the model does not know it"
            todo = "use another template, or take another model"
            raise UserError(what, where=self.name, todo=todo)

    def end_as_usual(self, *, chat: bool | None = None) -> None:
        """Set the main end of a decoder-only model's texts (`eos`): what its tokenizer says, in a `chat` the end of a turn.

        `chat` is as the settings say by default. Other models stay as they are.
        """
        if self.backbone.prompted:
            if chat is None:
                chat = (self.settings or PLAIN).chat
            self.eos = text_end(self.tokenizer, ends_of(self.model.config), chat=chat)


def fingerprint(checkpoint: Checkpoint) -> str | None:
    """What tells a model apart: the SHA-256 of a folder's weights, configuration and tokenizer, or of a GGUF file.

    Of a hub model it is the commit, None if that is not known. It does not depend on
    where the folder lies. Folders inside it, such as a training's ``checkpoint-N``, do
    not count.
    """
    folder = Path(checkpoint.name)
    if is_gguf(folder):
        return content_sha256(local_files(checkpoint.name))
    if not folder.is_dir():
        return getattr(checkpoint.model.config, "_commit_hash", None)
    skipped = _WITHOUT_EFFECT
    if _is_completed(folder):
        skipped -= {GENERATION}
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.suffix in _WITH_EFFECT and file.name not in skipped:
            digest.update(f"{file.name} {file_sha256(file)}\n".encode())
    return digest.hexdigest()


def _is_completed(folder: Path) -> bool:
    """Whether a folder's generation_config.json may name what opens a text, or what ends it, and config.json does not."""
    config = contents(folder / CONFIG)
    generation = folder / GENERATION
    if b'"decoder_start_token_id"' not in config:
        return True
    if not generation.exists():
        return False
    return bool(named_ends(as_json(config, CONFIG), read_generation(generation)))


def load_checkpoint(
    name: str,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    computed: torch.dtype | None = None,
) -> Checkpoint:
    """Load a local folder, a GGUF file or a hub model; a UserError says why it cannot be loaded.

    A local path never calls the hub.

    Args:
        name: The folder, the file or the hub's name.
        dtype: Of the weights.
        device: As torch calls it.
        computed: The dtype that the compiled kernels are to compute in, if nothing else
            is to compute it: then the model may be a `BareModel`, which is loaded
            faster. None if transformers may be asked for more.
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
    """The model, the tokenizer, and our settings as they stand in config.json, None without any.

    The weights are in `dtype`. If nothing but the compiled kernels is to compute them,
    in the dtype `computed`, the model may be without modules. `local` is whether `name`
    is no name on the hub. Whatever a library raises becomes a UserError that says why.
    """
    try:
        if computed:
            bare = _read_bare(name, dtype, computed, local=local)
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


def _read_bare(
    name: str, dtype: torch.dtype, computed: torch.dtype, *, local: bool
) -> Any:
    """Load a model for the compiled kernels alone, without the modules of transformers: a folder, a GGUF file, or a name on the hub.

    Returns the model, its tokenizer, and our settings as they stand in config.json;
    None if transformers is needed. `dtype` is that of the weights, `computed` the one
    that the kernels are to compute in.
    """
    if is_gguf(name):
        converted = Path(loadable(name, is_bare=True))
        return read_folder(converted, dtype, computed, local_files(name))
    folder = Path(name) if local else snapshot(name)
    if folder is None:
        return None
    # Of a folder that another version of transformers wrote, we read only the weights.
    read = read_folder(folder, dtype, computed) or read_foreign(folder, dtype, computed)
    if read and not local:
        read[0].config._commit_hash = folder.name
    return read


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a checkpoint to a folder: config.json, model.safetensors or adapters, the tokenizer's files and sentences.json.

    The model's config gets our settings and its ends. A folder is a model if it holds
    config.json: this file is deleted first and written last.
    """
    assert checkpoint.settings is not None, (
        "a checkpoint is saved with the settings it was trained under"
    )
    import transformers

    model = checkpoint.model
    setattr(model.config, KEY, msgspec.to_builtins(checkpoint.settings))
    ends = [*checkpoint.ends]
    model.config.eos_token_id = ends[0] if len(ends) == 1 else ends
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
        # safetensors lets only the owner read its file.
        mode = (written / CONFIG).stat().st_mode
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
