"""The settings of `pipedec train`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta

from pipedec_cli.data.records import DecoderKind
from pipedec_cli.jobs import settings as common
from pipedec_cli.jobs.settings import (
    LARGEST,
    Count,
    Device,
    Size,
    SourceTokens,
    Threads,
    WorkflowSettings,
    argument,
    key,
    option,
)

#: Where transformers' own callbacks can log a training; each is also the name of its
#: package.
Log = Literal["tensorboard", "wandb", "trackio", "mlflow"]
#: Examples of the dev set whose loss is taken; 32 of them are scored.
DEV_EXAMPLES: Final = 200
#: The checkpoint-N folders that stay at the end of a training.
KEPT_CHECKPOINTS: Final = 2


@dataclass(frozen=True, kw_only=True)
class TrainSettings(WorkflowSettings):
    """What a training starts from, learns and writes."""

    data: Path | None = argument(
        "A folder that `pipedec segment` wrote [default: the workspace's]."
    )
    teacher: str | None = option(
        None,
        "A sequential model (folder, hub name or GGUF file) that writes the targets.",
        metavar="MODEL",
    )
    model: str | None = option(
        None,
        "The start: a folder, hub name or GGUF file; scratch-tiny, -small, -base or -large (fresh T5; scratch-tiny-llama: another "
        "family); scratch (the teacher's shape) [default: the teacher, else scratch-tiny].",
    )
    decoder: DecoderKind = option(
        "pipelined", "sequential writes one token a call, as usual."
    )
    delay: Size | Literal["any"] = option(
        "any",
        "The Δt that the model is for. With 'any', random schedules, it serves every delay.",
    )
    epochs: Annotated[float, Meta(ge=0.001, le=LARGEST)] = option(
        10.0, "Passes over the training examples."
    )
    max_steps: Count | None = option(None, "Updates, instead of --epochs.")
    batch_size: Size | None = option(
        None, "Examples per device [default: 8 from scratch, else 24]."
    )
    learning_rate: Annotated[float, Meta(ge=0, le=LARGEST)] | None = option(
        None, "The highest rate [default: suits optimizer and start]."
    )
    bf16: bool = option(False, "Mixed precision in bfloat16.")
    lora: Annotated[int, Meta(ge=1, le=4096)] | None = option(
        None,
        "Train adapters of this rank alone (LoRA), merged at the end.",
        metavar="RANK",
    )
    chat: bool | None = common.chat_option("the teacher's, else --no-chat")
    max_source_tokens: SourceTokens | None = option(
        None, "Cut longer sources [default: the teacher's, else 2048]."
    )
    limit: Count | None = key(None, "Train on the first N examples only.")
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1)] = option(
        0, "Of weights, order, dropout and random schedules."
    )
    device: Device = common.device_option()
    resume: bool = option(False, "Go on after a stop, from the last checkpoint-N.")
    overwrite: bool = option(
        False, "Replace the model, or the unfinished training, in the folder."
    )
    out: Path | None = option(
        None, "The model's folder [default: models/DECODER in the workspace]."
    )

    accumulation: Size = key(1, "Batches whose gradients make one update.")
    optimizer: Literal["adafactor", "adamw"] | None = key(
        None,
        "adafactor, whose rate is relative to the size of each matrix, or adamw [default: adafactor from scratch, else "
        "adamw].",
    )
    prompt_template: str | None = key(
        None,
        "The text around a source in the prompt; {source} stands for it, at the end if an encoder reads it [default: the "
        "teacher's, else the source, in a prompt with a blank line].",
        read=common.read_template,
    )
    time_max: Size | None = key(
        None,
        "The last time-step of decoding, saved with the model [default: what holds 99.5 % of the training targets, at "
        "least 50].",
    )
    keep: Literal["best", "last"] = key(
        "best",
        "The weights that stay: those with the best dev score (or loss, where nothing is scored), or the last.",
    )
    patience: Count | None = key(
        None, "End after so many evaluations without a better one."
    )
    log_to: tuple[Log, ...] = key(
        (),
        "Log as well to tensorboard, wandb, trackio or mlflow; several with commas.",
        read=common.listed,
        metavar="NAMES",
    )
    threads: Threads | None = common.threads_key()

    @property
    def prompted(self) -> bool:
        """Whether the settings say what stands around a source."""
        return self.prompt_template is not None or self.chat is not None
