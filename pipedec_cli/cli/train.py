"""`pipedec train`: a checkpoint from segmented data."""

from rich.console import Console

from pipedec_cli.data.writing import to_json, write_text
from pipedec_cli.jobs import train as job
from pipedec_cli.jobs.train import Trained
from pipedec_cli.jobs.train_settings import TrainSettings
from pipedec_cli.training.hyperparameters import is_main
from pipedec_cli.view.console import write_stdout
from pipedec_cli.view.progress import Terminal

EXAMPLES = """
pipedec train                                     # a small T5 from scratch, for every delay
pipedec train --teacher ./my-model                # a faster model that writes like yours
pipedec train --model Qwen/Qwen3-0.6B --chat --lora 16 --bf16
pipedec train --decoder sequential                # the model that a report compares with
pipedec train --resume                            # go on after a stop
torchrun --nproc-per-node 2 -m pipedec_cli train --model google-t5/t5-large --bf16
"""


def train(settings: TrainSettings) -> None:
    """Train a pipelined decoder, or the sequential model that a report compares with.

    Any checkpoint of a served family is a start. train.jsonl is trained on, dev.jsonl
    evaluated, test.jsonl not read.

    With --teacher the sources suffice: the model that you run today writes the targets,
    and the pipelined decoder starts from its weights and learns to write like it.
    """
    if is_main():
        terminal = Terminal(quiet=settings.quiet)
    else:  # only the first of several processes speaks
        terminal = Terminal(quiet=True, console=Console(quiet=True))
    made = job.train(settings, terminal)
    describe(made)
    if is_main() and settings.as_json:
        write_stdout(to_json(made.result) + "\n")


def describe(made: Trained) -> None:
    """Write the model card and the page of a training that has just ended."""
    from pipedec_cli.page.report import training_page
    from pipedec_cli.view.model_card import training_sheets, write_card

    if is_main() and made.checkpoint and made.record and made.data:
        write_card(made.target, made.checkpoint, made.record, made.data, made.examples)
        sheets = training_sheets(made.checkpoint, made.record)
        write_text(
            made.target / "training.html",
            training_page(made.target.name, made.record["result"], sheets),
        )
