"""The way in for Python: the public names do what the commands do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import pipedec_cli
from pipedec_cli.data.errors import UserError
from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.model.decoder import load
from tests.checkpoints import TOY


def test_a_checkpoint_by_name_generates_from_texts(trained: Checkpoint) -> None:
    generator = load(Path(trained.name), batch_size=3, device="cpu")

    results = list(generator.texts([source for source, _ in TOY]))

    assert [result.segments for result in results] == [segments for _, segments in TOY]
    assert [result.text for result in results] == ["; ".join(segments) for _, segments in TOY]


def test_the_package_offers_it_by_its_public_name(trained: Checkpoint) -> None:
    assert pipedec_cli.load is load
    assert next(iter(pipedec_cli.load(trained.name, device="cpu").texts(["red 3"]))).text == "red red red"


def test_the_dtype_is_that_of_the_weights(trained: Checkpoint) -> None:
    generator = load(trained.name, dtype="bfloat16", device="cpu")

    assert generator.checkpoint.model.dtype == torch.bfloat16
    assert next(iter(generator.texts(["white 6"]))).segments == TOY[8][1]


def test_the_steps_of_the_grid_can_be_watched(trained: Checkpoint) -> None:
    generator = load(trained.name, device="cpu")

    items = list(generator.run(["blue 2 white 2"], generator.method(2)))

    steps = [item for item in items if isinstance(item, pipedec_cli.Stepped)]
    (result,) = (item for item in items if isinstance(item, pipedec_cli.Generated))
    assert [step.step.number for step in steps] == list(range(1, result.steps + 1))
    assert result.segments == ("blue blue", "white white")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"name": "no-such-folder"}, "no checkpoint folder 'no-such-folder'"),
        ({"dtype": "int4"}, "there is no dtype 'int4'"),
        ({"device": "tpu"}, "there is no device 'tpu'"),
        ({"dtype": "float16"}, "float16 is not for the CPU"),
    ],
)
def test_what_cannot_be_is_one_clear_line(trained: Checkpoint, options: dict[str, str], what: str) -> None:
    with pytest.raises(UserError, match=what) as error:
        load(**{"name": trained.name, "device": "cpu", **options})

    assert "\n" not in str(error.value)
