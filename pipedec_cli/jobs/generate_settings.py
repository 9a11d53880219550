"""The settings of `pipedec generate`, which are those of every run of a decoder over records, and of `shard merge`."""

from dataclasses import MISSING, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from pipedec_cli.data.inputs import STDIN, Shard
from pipedec_cli.data.records import Draft
from pipedec_cli.jobs import settings as common
from pipedec_cli.jobs.settings import (
    LARGEST,
    Count,
    Device,
    Settings,
    Size,
    SourceTokens,
    StoredDtype,
    Threads,
    WorkflowSettings,
    argument,
    general,
    key,
    option,
)
from pipedec_cli.objects.json_schema import schema_file
from pipedec_cli.pipeline.grid import EmptyRows

Shots = Annotated[
    tuple[Annotated[str, Meta(min_length=1)], Size],
    Meta(description="a file and how many of its records, such as train.jsonl:4"),
]
_data = partial(option, panel="Data")
_asking = partial(option, panel="Without training")


@dataclass(frozen=True, kw_only=True)
class GenerateSettings(WorkflowSettings):
    """The settings of `pipedec generate`. None leaves a setting to the model, the workspace or the machine."""

    data: str | None = argument(
        "JSON lines, .json, .csv, .tsv, .parquet, -, a folder or hub name."
    )
    model: str | None = option(
        None, "Folder, hub name, GGUF file or sequential [default: pipelined]."
    )
    delay: Size | Literal["wait"] | None = option(
        None, "Δt: a row starts every N time-steps [default: trained, or 2]."
    )
    empty_rows: EmptyRows | None = key(
        None,
        "After an empty row: retry (the paper's rule) or stop; default: as trained.",
    )
    stop_on_repeat: bool | None = key(
        None, "End a text that repeats itself; default: as trained."
    )
    exact: str | None = option(
        None, "Write this sequential model's text in fewer calls.", metavar="MODEL"
    )
    max_tokens: Size | None = option(
        None, "The most tokens [default: 512 for wait and sequential]."
    )
    draft: Draft | None = option(
        None, "What --exact checks [default: pipelined, else source]."
    )
    confidence: bool = option(False, "Say how sure each value of an object is.")
    grounded: bool | None = option(
        None,
        "Take free values out of the source [default: without training].",
        "--grounded/--free",
    )
    spans: bool = option(
        False, "Say where in the source each value of an object stands."
    )
    fields: str | None = common.fields_option(
        "Write objects with keys such as 'name, age int, kind: pub|bar', or of a JSON Schema or FILE.py:CLASS (pydantic).",
        panel="Without training",
    )
    shots: Shots | None = _asking(
        None,
        "Show N examples of a file in the prompt.",
        read=common.read_shots,
        metavar="FILE:N",
    )
    ask: tuple[str, ...] = _asking(
        (), "Ask this about each source. May be given several times."
    )
    calibrate: str | None = _asking(
        None, "Learn from right answers when a key has no value.", metavar="FILE"
    )
    prior: bool = key(
        False,
        "Subtract from the score of a choice what it scores behind an empty text.",
    )
    whole: bool = key(
        False, "Write an object as JSON in one go, under a grammar of its schema."
    )
    show_prompt: bool = _asking(
        False, "Print what the model reads for the first source, and end."
    )
    chunk: Annotated[int, Meta(ge=8, le=LARGEST)] | None = key(
        None,
        "Read longer sources in overlapping parts of N tokens, and merge the objects.",
    )
    time_max: Size | None = key(
        None, "The last time-step; default: as trained, 64 without training."
    )
    sub_max: Size | None = key(
        None,
        "The most subsequences, with empty ones that stay; default: as segmented.",
    )
    text: tuple[str, ...] = option(
        (), "A source instead of DATA. May be given several times."
    )
    plain: bool = _data(False, "DATA is plain text, a source a line.")
    split: Literal["test", "dev", "train"] | None = _data(
        None, "The split of DATA [default: test]."
    )
    limit: Count | None = _data(None, "The first N examples only.")
    source_field: str = _data("source", "The field to generate from.")
    target_field: str = key(
        "target", "The field with the right answer, for `pipedec score`."
    )
    prompt_template: str | None = _data(
        None,
        "The prompt, with {source} (last, for an encoder) [default: as trained].",
        read=common.read_template,
    )
    chat: bool | None = common.chat_option("as trained", panel="Data")
    max_source_tokens: SourceTokens | None = _data(
        None, "Cut longer sources [default: as trained]."
    )
    skip_invalid: bool = _data(False, "List invalid records in NAME.invalid.jsonl.")
    batch_size: Size | Literal["auto"] = option(
        "auto", "Examples decoded at the same time."
    )
    dtype: StoredDtype | None = option(
        None,
        "Or bfloat16, float16, int8, int4 [default: float32; GGUF's own].",
        metavar="TYPE",
    )
    device: Device = common.device_option()
    threads: Threads | None = common.threads_key()
    trace: bool | None = key(
        None,
        "Write the grid and the source's token ids, for the report; default: in the workspace's files.",
    )
    out: str | None = general(
        None,
        "A file, .csv or .parquet, or - [default: - for --text, -; else workspace].",
        metavar="FILE|-",
    )
    resume: bool = general(
        False, "Go on after a stop. Else an earlier file becomes FILE.bak."
    )
    live: bool = general(False, "Show the grid while it is decoded, on stderr.")
    part: Shard | None = general(
        None,
        "Generate part K of N into the folder --out; goes on after a stop.",
        read=Shard.parse,
        metavar="K/N",
    )
    ray: bool = general(
        False, "Generate all parts with Ray, here or on the cluster $RAY_ADDRESS."
    )

    @property
    def in_parts(self) -> bool:
        """Whether parts go into the folder of a job: one of them, or all."""
        return bool(self.part or self.ray)

    @property
    def is_blind(self) -> bool:
        """Whether a model answers without training."""
        return self.fields is not None or bool(self.shots or self.ask)

    @property
    def schema(self) -> str | None:
        """The file of the schema, if `fields` names one."""
        return schema_file(self.fields)

    @property
    def to_stdout(self) -> bool:
        """Whether results go to standard output: without --out those of --text and of standard input."""
        return self.out == "-" or (
            self.out is None and bool(self.text or self.data == STDIN)
        )


@dataclass(frozen=True, kw_only=True)
class MergeSettings(Settings):
    """The settings of `pipedec shard merge`."""

    folder: Path = argument("The folder of the job.", MISSING)
    out: str | None = general(
        None,
        "The file, or - for stdout [default: predictions.jsonl in the folder].",
        metavar="FILE|-",
    )
