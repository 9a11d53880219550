"""Several processes that train together, as `torchrun` starts them: what one would learn, and one that writes.

Run as a program, this is one of them, with the folder as argument.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Segmentation
from pipedec_cli.data.segmentation import PhraseSegmenter
from pipedec_cli.data.trained import checkpoints
from pipedec_cli.data.workspace import save_segmented
from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.training.trainer import check_sharding, train
from tests.checkpoints import QUICK, examples_of, fresh_toy, toy_records, weights_of
from tests.running import read_json
from tests.words import refusing

# Seven examples: an epoch is filled up to two updates of four.
HYPER = replace(QUICK, batch_size=2, max_steps=8)


def learn(folder, hyper=HYPER, **options):
    """The losses of each update and look at the dev set, without dropout."""
    checkpoint, shown = fresh_toy(), []
    examples = examples_of(checkpoint)
    train(
        checkpoint,
        examples[:7],
        examples[7:],
        folder,
        hyper,
        show=shown.append,
        **options,
    )
    return [(one.update, one.loss, one.dev_loss or 0.0) for one in shown]


def launched(*arguments, **environment):
    """What a command that `torchrun` starts in two processes printed, and how it ended."""
    # 2 s to say why one ends.
    two = ("--standalone", "--nproc-per-node=2", "--monitor-interval=2", "-m")
    return torchrun(*two, *arguments, **environment)


def torchrun(*arguments, **environment):
    """What `torchrun` with these arguments printed, and how it ended."""
    command = [sys.executable, "-m", "torch.distributed.run", *map(str, arguments)]
    return subprocess.run(  # noqa: PLW1510
        command,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=900,
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The losses of one process that learns from the same batches, and the weights that it ends with."""
    folder = tmp_path_factory.mktemp("alone")
    losses = learn(folder, replace(HYPER, batch_size=4))
    assert [step for step, *_ in losses] == [*range(1, 9)]
    return losses, weights_of(load_checkpoint(str(folder)))


def assert_alike(losses, folder, alone):
    """The last losses and the weights, up to the order of sums in float32."""
    expected, weights = alone
    last = expected[len(expected) - len(losses) :]
    for mine, theirs in zip(losses, last, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5)
    loaded = weights_of(load_checkpoint(str(folder)))
    torch.testing.assert_close(loaded, weights, rtol=1e-4, atol=1e-5)


def test_batches_that_are_accumulated_are_learnt_from_as_one(tmp_path, alone):
    assert_alike(learn(tmp_path, replace(HYPER, accumulation=2)), tmp_path, alone)


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True], ids=["DDP", "FSDP"])
def test_two_processes_learn_what_one_does_and_resume_it_and_one_of_them_talks_and_writes(
    tmp_path, alone, sharded
):
    environment = {}
    if sharded:
        environment = {
            "ACCELERATE_USE_FSDP": "true",
            "FSDP_VERSION": "2",
            "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
        }
    ended = launched("tests.training.test_processes", tmp_path, **environment)
    assert ended.returncode == 0, ended.stderr
    # From update 1 on, from 5, and behind the last.
    for name, count in (("whole", 8), ("resumed", 4), ("ended", 0)):
        losses, nothing = (
            read_json(tmp_path / f"{name}{rank}.json") for rank in (0, 1)
        )
        assert (len(losses), nothing) == (count, [])
        assert_alike(losses, tmp_path / name, alone)
        kept = [path.name for path in checkpoints(tmp_path / name)]
        assert kept == ["checkpoint-4", "checkpoint-8"]
        assert (tmp_path / name / "checkpoint-4" / "model.safetensors").exists()


def sharding(**changed):
    """The plugin of accelerate with the settings that work, but for these."""
    settings = {
        "fsdp_version": 2,
        "auto_wrap_policy": None,
        "state_dict_type": SimpleNamespace(name="FULL_STATE_DICT"),
        "cpu_ram_efficient_loading": False,
    }
    return SimpleNamespace(**settings | changed)


@pytest.mark.parametrize(
    ("plugin", "optimizer"),
    [
        (sharding(), "adafactor"),
        (sharding(fsdp_version=1), "adamw"),
        (sharding(auto_wrap_policy=len), "adamw"),
        (sharding(state_dict_type=SimpleNamespace(name="SHARDED_STATE_DICT")), "adamw"),
        (sharding(cpu_ram_efficient_loading=True), "adamw"),
    ],
)
def test_what_cannot_be_sharded_rightly_is_refused(plugin, optimizer):
    check_sharding(sharding(), "adamw")
    with refusing():
        check_sharding(plugin, optimizer)


def test_fsdp_that_accelerate_would_leave_out_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with refusing():
        learn(tmp_path)


@pytest.fixture
def data(tmp_path):
    """A folder of segmented data."""
    segmentation = Segmentation("phrase", (";",), "; ")
    records = {"train": toy_records()}
    save_segmented(tmp_path / "data", records, segmentation, PhraseSegmenter(), {})
    return tmp_path / "data"


@pytest.mark.slow
def test_the_documented_command_trains_on_two_cores(tmp_path, data):
    scale = Path(__file__).parents[2] / "docs" / "scale.md"
    (line,) = re.findall(
        r"^torchrun (.* --device cpu) +# a CPU core each$",
        scale.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    out = tmp_path / "out"
    ended = torchrun(*line.split(), data, "--out", out, "--max-steps", "2")
    assert ended.returncode == 0, ended.stderr
    assert "2 updates of 24 in 2 processes" in ended.stderr
    assert (out / "model.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "model", "error"),
    [
        ("pipedec_cli", "no-model", "no checkpoint folder 'no-model'"),
        ("tests.training.test_processes", "scratch-tiny", "the second one fails"),
    ],
    ids=["everywhere", "in the second"],
)
def test_what_goes_wrong_is_said_in_one_line_and_ends_all(
    tmp_path, data, program, model, error
):
    asked = ("--out", tmp_path / "out", "--max-steps", "20", "--model", model)
    ended = launched(program, "train", data, *asked)
    assert ended.returncode
    errors = re.findall("^error: .*", ended.stderr, re.MULTILINE)
    assert len(errors) == 1 and error in errors[0]
    said = ended.stderr.partition("torch/distributed/elastic")[0]
    assert "Traceback" not in said
    if model == "scratch-tiny":
        assert "another process has ended; the same command with --resume" in said


def fail(*arguments):
    """`pipedec`, whose second process comes to an error of its own in the third update."""
    from pipedec_cli.cli.app import main
    from pipedec_cli.training.trainer import TeacherForcing

    if os.environ["RANK"] == "1":
        calls, forward = itertools.count(), TeacherForcing.forward

        def failing(*given, **named):
            if next(calls) == 6:
                raise UserError("the second one fails", todo="do nothing")
            return forward(*given, **named)

        TeacherForcing.forward = failing
    sys.argv = ["pipedec", *arguments]
    main()


def shard_on_cpus():
    """Have accelerate, which shards on GPUs only, do so over gloo."""
    from accelerate import state

    begin = state.AcceleratorState.__init__

    def begin_sharded(self, *arguments, fsdp_plugin=None, **options):
        begin(self, *arguments, fsdp_plugin=fsdp_plugin, **options)
        if (
            fsdp_plugin is not None
            and self.distributed_type == state.DistributedType.MULTI_CPU
        ):
            self.distributed_type = state.DistributedType.FSDP
            state.PartialState._shared_state["distributed_type"] = self.distributed_type
            self.fsdp_plugin = fsdp_plugin

    state.AcceleratorState.__init__ = begin_sharded


def main(folder):
    """Train; resume from the checkpoint before the last; and once more behind the last. Write down what came of each."""
    shard_on_cpus()
    rank, before = os.environ["RANK"], None
    for name, lost in (
        ("whole", ()),
        ("resumed", ("checkpoint-8",)),
        ("ended", ("model.safetensors",)),
    ):
        if rank == "0" and before:
            shutil.copytree(
                before, folder / name, ignore=shutil.ignore_patterns("config.json")
            )
            for path in (folder / name / one for one in lost):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if before:
            torch.distributed.barrier()
        losses = learn(folder / name, resume=before is not None)
        (folder / f"{name}{rank}.json").write_text(json.dumps(losses), encoding="utf-8")
        torch.distributed.barrier()
        before = folder / name


if __name__ == "__main__":
    fail(*sys.argv[1:]) if sys.argv[1] == "train" else main(Path(sys.argv[1]))
