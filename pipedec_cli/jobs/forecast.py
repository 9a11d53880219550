"""What `segment` says of a training to come: the memory, as `train` will reckon it, of the model of ``--tokenizer``."""

from __future__ import annotations

from pathlib import Path

import psutil

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.trained import is_model
from pipedec_cli.jobs.events import Notify
from pipedec_cli.jobs.train import build_model, hyperparameters_of, method_of
from pipedec_cli.jobs.train_data import load_data
from pipedec_cli.jobs.train_settings import TrainSettings


def forecast(model: str, folder: Path, notify: Notify) -> None:
    """Say what memory `train --model MODEL` takes on a folder that `segment` wrote; warn where it is not free.

    Without a folder of weights nothing is said: a hub model would have to be downloaded.
    """
    if not is_model(Path(model)):
        return
    weights = sum(file.stat().st_size for file in Path(model).glob("*.safetensors"))
    if 2 * weights > psutil.virtual_memory().available:
        notify.warn(
            f"training {model} takes several times the {weights / 1e9:,.1f} GB of its weights: too much here"
        )
        return
    from pipedec_cli.model.training.collate import encode
    from pipedec_cli.model.training.cost import needed_memory

    settings, silent = TrainSettings(model=model, data=folder), Notify()
    try:
        data = load_data(settings, folder, silent)
        hyper = hyperparameters_of(settings, data)
        checkpoint = build_model(settings, data, method_of(settings, data))
        examples = [*encode(checkpoint, data.train)]
        needed = needed_memory(checkpoint, examples, hyper, name=lambda n: f"record {data.train[n].id!r}")
    except UserError as error:
        notify.warn(f"training {model}: {error}")
        return
    total = needed + 4 * checkpoint.model.num_parameters()
    batches = f"{hyper.updates(len(examples)):,} updates of {hyper.batch_size}"
    notify.say(f"training {model} on them: {batches}, some {total / 1e9:.1f} GB of memory")
