"""The settings of `pipedec train`."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

from pipedec_cli.data.records import MOST, DecoderKind, Family
from pipedec_cli.jobs import settings as common
from pipedec_cli.jobs.settings import WorkflowSettings, argument, key, option

#: Where transformers' own callbacks can log a training; each is also the name of its
#: package.
LOGS: Final = ("tensorboard", "wandb", "trackio", "mlflow")


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
        "The start: a folder, hub name or GGUF file, scratch-tiny, -small, -base or -large (fresh weights, a new tokenizer), or "
        "scratch (the teacher's shape) [default: the teacher, else scratch-tiny].",
    )
    decoder: DecoderKind = option(
        "pipelined", "sequential writes one token a call, as usual."
    )
    delay: int | Literal["any"] = option(
        "any",
        "The Δt that the model is for. With 'any', random schedules, it serves every delay.",
        parser=common.number_or("any"),
        metavar="N|any",
    )
    epochs: float = option(10.0, "Passes over the training examples.", min=0.001)
    max_steps: int | None = option(None, "Updates, instead of --epochs.", min=1)
    batch_size: int | None = option(
        None, "Examples per device [default: 8 from scratch, else 24].", min=1, max=MOST
    )
    learning_rate: float | None = option(
        None, "The highest rate [default: suits optimizer and start].", min=0.0
    )
    bf16: bool = option(False, "Mixed precision in bfloat16.")
    lora: int | None = option(
        None,
        "Train adapters of this rank alone (LoRA), merged at the end.",
        min=1,
        max=4096,
        metavar="RANK",
    )
    chat: bool | None = common.chat_option("the teacher's, else --no-chat")
    max_source_tokens: int | None = option(
        None,
        "Cut longer sources [default: the teacher's, else 2048].",
        min=2,
        max=65_536,
    )
    limit: int | None = key(None, "Train on the first N examples only.", min=1)
    seed: int = option(
        0, "Of weights, order, dropout and random schedules.", min=0, max=2**32 - 1
    )
    device: str = common.device_option()
    resume: bool = option(False, "Go on after a stop, from the last checkpoint-N.")
    overwrite: bool = option(
        False, "Replace the model, or the unfinished training, in the folder."
    )
    out: Path | None = option(
        None, "The model's folder [default: models/DECODER in the workspace]."
    )

    family: Family | None = key(
        None,
        "The family of fresh weights (--model scratch-…) [default: t5; qwen3 for scratch-qwen3-0.6b].",
    )
    accumulation: int = key(
        1, "Batches whose gradients make one update.", min=1, max=MOST
    )
    optimizer: Literal["adafactor", "adamw"] | None = key(
        None,
        "adafactor, whose rate is relative to the size of each matrix, or adamw [default: adafactor from scratch, else "
        "adamw].",
    )
    rate_schedule: Literal["linear", "constant"] = (
        "linear"  # whether the rate falls to zero or stays
    )
    checkpoint_activations: Literal["none", "cheap", "all"] | None = key(
        None,
        "What is computed again in the backward pass, to save memory: all but the inputs of the layers, which takes a "
        "third more time; what is cheap; or none [default: cheap on a CPU from a width of 512].",
    )
    source_prefix: str | None = key(
        None,
        "Text before every source, such as 'summarize: ' [default: the teacher's, else none].",
    )
    prompt_template: str | None = key(
        None,
        "The text around a source in the prompt; {source} stands for it [default: the teacher's, else the source and a "
        "blank line].",
        metavar="TEXT",
        parser=common.template_parser,
    )
    time_max: int | None = key(
        None,
        "The last time-step of decoding, saved with the model [default: what holds 99.5 % of the training targets, at "
        "least 50].",
        min=1,
        max=MOST,
    )
    evaluations: int | None = key(
        None,
        "How often the dev set is evaluated [default: 10 times, less often in a short training].",
        min=1,
    )
    dev_examples: int = key(
        200, "Dev examples for the loss. 32 of them are scored.", min=0
    )
    keep: Literal["best", "last"] = key(
        "best",
        "The weights that stay: those with the best dev score (or loss, where nothing is scored), or the last.",
    )
    patience: int | None = key(
        None, "End after so many evaluations without a better one.", min=1
    )
    log_to: tuple[str, ...] = key(
        (),
        "Log as well to tensorboard, wandb, trackio or mlflow; several with commas.",
        parser=partial(common.names_of, known=LOGS),
        metavar="NAMES",
    )
    keep_checkpoints: int = key(
        2, "How many checkpoint-N folders stay at the end.", min=0
    )
    threads: int | None = common.threads_key()

    @property
    def prompted(self) -> bool:
        """Whether the settings say how prompts look. Encoder-decoders have no prompts."""
        return self.prompt_template is not None or self.chat is not None
