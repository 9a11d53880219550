"""The settings of `pipedec generate`, and those of every run of a decoder over records."""

from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from pipedec_cli.data.inputs import STDIN, Shard
from pipedec_cli.data.records import MOST, Delay, Draft
from pipedec_cli.jobs import settings as common
from pipedec_cli.jobs.settings import (
    Dtype,
    Settings,
    WorkflowSettings,
    argument,
    key,
    option,
)
from pipedec_cli.pipeline.grid import EmptyRows

_decoding, _data, _asking = (
    partial(option, panel=name) for name in ("Options", "Data", "Without training")
)


@dataclass(frozen=True, kw_only=True)
class RunSettings(WorkflowSettings):
    """What a run of a decoder over records needs. None leaves a setting to the model, the workspace or the machine."""

    data: str | None = argument(
        "JSON lines, .json, .csv, .tsv, .parquet, -, a folder or hub name."
    )
    model: str | None = option(
        None, "Folder, hub name, GGUF file or sequential [default: pipelined]."
    )
    delay: Delay | None = _decoding(
        None,
        "Δt: a row starts every N time-steps [default: trained, or 2].",
        parser=common.number_or("wait"),
        metavar="N|wait",
    )
    empty_rows: EmptyRows | None = key(
        None,
        "After an empty row: retry (the paper's rule) or stop; default: as trained.",
    )
    stop_on_repeat: bool | None = key(
        None, "End a text that repeats itself; default: as trained."
    )
    exact: str | None = _decoding(
        None, "Write this sequential model's text in fewer calls.", metavar="MODEL"
    )
    max_tokens: int | None = _decoding(
        None, "The most tokens [default: 512 for wait and sequential].", min=1, max=MOST
    )
    draft: Draft | None = _decoding(
        None, "What --exact checks [default: pipelined, else source]."
    )
    confidence: bool = _decoding(False, "Say how sure each value of an object is.")
    grounded: bool | None = _decoding(
        None,
        "Take free values out of the source [default: without training].",
        "--grounded/--free",
    )
    spans: bool = _decoding(
        False, "Say where in the source each value of an object stands."
    )
    schema: str | None = _asking(
        None,
        "Write objects of a JSON Schema, or of a FILE.py:CLASS (pydantic).",
        metavar="FILE",
    )
    fields: str | None = _asking(
        None,
        "The same with these keys, such as 'name, age int, day date, kind: pub|bar'.",
        metavar="NAME,NAME",
    )
    shots: tuple[str, int] | None = _asking(
        None,
        "Show N examples of a file in the prompt.",
        parser=common.parse_shots,
        metavar="FILE:N",
    )
    ask: tuple[str, ...] = _asking(
        (), "Ask this about each source. May be given several times."
    )
    calibrate: str | None = _asking(
        None, "Learn from right answers when a key has no value.", metavar="FILE"
    )
    chunk: int | None = key(
        None,
        "Read longer sources in overlapping parts of N tokens, and merge the objects.",
        min=8,
    )
    time_max: int | None = key(
        None,
        "The last time-step; default: as trained, 64 without training.",
        min=1,
        max=MOST,
    )
    sub_max: int | None = key(
        None,
        "The most subsequences, with empty ones that stay; default: as segmented.",
        min=1,
        max=MOST,
    )
    plain: bool = _data(False, "DATA is plain text, a source a line.")
    split: Literal["test", "dev", "train"] | None = _data(
        None, "The split of DATA [default: test]."
    )
    limit: int | None = _data(None, "The first N examples only.", min=1)
    source_field: str = _data("source", "The field to generate from.")
    target_field: str = key(
        "target", "The field with the right answer, for `pipedec score`."
    )
    source_prefix: str | None = key(
        None,
        "Text before every source, or the languages of a translation model: 'eng_Latn deu_Latn'.",
    )
    prompt_template: str | None = _data(
        None,
        "The prompt, with {source} [default: as trained].",
        metavar="TEXT",
        parser=common.template_parser,
    )
    chat: bool | None = common.chat_option("as trained", panel="Data")
    max_source_tokens: int | None = _data(
        None, "Cut longer sources [default: as trained].", min=2, max=65_536
    )
    skip_invalid: bool = _data(False, "List invalid records in NAME.invalid.jsonl.")
    batch_size: int | Literal["auto"] = _decoding(
        "auto", "Examples decoded at the same time."
    )
    dtype: Dtype = _decoding(
        "float32",
        "Or bfloat16, float16 (GPU), int8, int4 (CPU) [default: float32].",
        metavar="TYPE",
    )
    device: str = common.device_option(panel="Options")
    threads: int | None = common.threads_key()
    trace: bool | None = key(
        None,
        "Write the grid and the source's token ids, for the report; default: in the workspace's files.",
    )
    out: str | None = common.general(
        None,
        "A file, or - for stdout [default: - for --text and -, else the workspace].",
        metavar="FILE|-",
    )
    recipe: str | None = key(
        None, "A recipe as defaults: paper, a data set of the paper, or fields."
    )
    # Settings of `generate` alone.
    show_prompt: bool = False
    text: tuple[str, ...] = ()
    resume: bool = False
    live: bool = False
    part: Shard | None = None
    ray: bool = False

    @property
    def is_blind(self) -> bool:
        """Whether a model answers without training."""
        keys = self.schema is not None or self.fields is not None
        return keys or bool(self.shots or self.ask)

    @property
    def to_stdout(self) -> bool:
        """Whether results go to standard output: without --out those of --text and of standard input."""
        return self.out == "-" or (
            self.out is None and bool(self.text or self.data == STDIN)
        )


@dataclass(frozen=True, kw_only=True)
class GenerateSettings(RunSettings):
    """The settings of `pipedec generate`."""

    text: tuple[str, ...] = option(
        (), "A source instead of DATA. May be given several times."
    )
    show_prompt: bool = _asking(
        False, "Print what the model reads for the first source, and end."
    )
    resume: bool = common.general(
        False, "Go on after a stop. Else an earlier file becomes FILE.bak."
    )
    live: bool = common.general(False, "Show the grid while it is decoded, on stderr.")
    part: Shard | None = common.general(
        None,
        "Generate part K of N into the folder --out; goes on after a stop.",
        parser=Shard.parse,
        metavar="K/N",
    )
    as_json: bool = common.general(
        False,
        "Print JSON, also where --text and --plain give texts on stdout.",
        "--json",
    )
    ray: bool = common.general(
        False, "Generate all parts with Ray, here or on the cluster $RAY_ADDRESS."
    )


@dataclass(frozen=True, kw_only=True)
class MergeSettings(Settings):
    """The settings of `pipedec shard merge`."""

    folder: Path = argument("The folder of the job.", MISSING)
    out: str | None = common.general(
        None,
        "The file, or - for stdout [default: predictions.jsonl in the folder].",
        metavar="FILE|-",
    )
    as_json: bool = common.json_option()
    quiet: bool = common.quiet_option()
