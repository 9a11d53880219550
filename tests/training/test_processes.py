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
    two = (
        "--standalone",
        "--nproc-per-node=2",
        "--monitor-interval=2",
    )  # 2 s to say why one ends
    return torchrun(*two, "-m", *arguments, **environment)


def torchrun(*arguments, **environment):
    """What `torchrun` with these arguments printed, and how it ended."""
    return subprocess.run(  # noqa: PLW1510
        [sys.executable, "-m", "torch.distributed.run", *map(str, arguments)],
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
    """Up to the order of sums in float32."""
    for mine, theirs in zip(
        losses, alone[0][len(alone[0]) - len(losses) :], strict=True
    ):
        assert mine == pytest.approx(theirs, rel=1e-5)
    torch.testing.assert_close(
        weights_of(load_checkpoint(str(folder))), alone[1], rtol=1e-4, atol=1e-5
    )


def test_batches_that_are_accumulated_are_learnt_from_as_one(tmp_path, alone):
    assert_alike(learn(tmp_path, replace(HYPER, accumulation=2)), tmp_path, alone)


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True], ids=["DDP", "FSDP"])
def test_two_processes_learn_what_one_does_and_resume_it_and_one_of_them_talks_and_writes(
    tmp_path, alone, sharded
):
    how = {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": "2",
        "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    }
    ended = launched(
        "tests.training.test_processes", tmp_path, **(how if sharded else {})
    )
    assert ended.returncode == 0, ended.stderr
    # From update 1 on, from 5, and behind the last.
    for name, count in (("whole", 8), ("resumed", 4), ("ended", 0)):
        losses, nothing = (
            json.loads((tmp_path / f"{name}{rank}.json").read_text()) for rank in (0, 1)
        )
        assert (len(losses), nothing) == (count, [])
        assert_alike(losses, tmp_path / name, alone)
        kept = [path.name for path in checkpoints(tmp_path / name)]
        assert kept == ["checkpoint-4", "checkpoint-8"]
        assert (tmp_path / name / "checkpoint-4" / "model.safetensors").exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"fsdp_version": 1},
        {"auto_wrap_policy": len},
        {"state_dict_type": SimpleNamespace(name="SHARDED_STATE_DICT")},
        {"cpu_ram_efficient_loading": True},
    ],
)
def test_what_cannot_be_sharded_rightly_is_refused(changed):
    whole = SimpleNamespace(name="FULL_STATE_DICT")
    settings = {
        "fsdp_version": 2,
        "auto_wrap_policy": None,
        "cpu_ram_efficient_loading": False,
    }
    plugin = SimpleNamespace(**settings, state_dict_type=whole)
    check_sharding(plugin, "adamw")
    with pytest.raises(UserError, match="optimizer=adamw"):
        check_sharding(plugin, "adafactor")
    with pytest.raises(UserError, match="--fsdp_cpu_ram_efficient_loading false"):
        check_sharding(SimpleNamespace(**vars(plugin) | changed), "adamw")


def test_fsdp_that_accelerate_would_leave_out_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(UserError, match=r"FSDP takes several GPUs.*torchrun"):
        learn(tmp_path)


@pytest.mark.slow
def test_the_documented_command_trains_on_two_cores(tmp_path):
    how = (Segmentation("phrase", (";",), "; "), PhraseSegmenter(), {})
    save_segmented(tmp_path / "data", {"train": toy_records()}, *how)
    documented = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(
        encoding="utf-8"
    )
    (line,) = re.findall(
        r"^torchrun (.* --device cpu) +# a CPU core each$", documented, re.MULTILINE
    )
    ended = torchrun(
        *line.split(), tmp_path / "data", "--out", tmp_path / "out", "--max-steps", "2"
    )
    assert ended.returncode == 0, ended.stderr
    assert "2 updates of 24 in 2 processes" in ended.stderr
    assert (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["everywhere", "in the second"])
def test_what_goes_wrong_is_said_in_one_line_and_ends_all(tmp_path, where):
    how = (Segmentation("phrase", (";",), "; "), PhraseSegmenter(), {})
    save_segmented(tmp_path / "data", {"train": toy_records()}, *how)
    asked = [
        "train",
        tmp_path / "data",
        "--out",
        tmp_path / "out",
        "--max-steps",
        "20",
        "--model",
    ]
    if where == "everywhere":
        ended = launched("pipedec_cli", *asked, "no-model")
        expected = "error: no checkpoint folder 'no-model'; give the folder of a model, a GGUF file, or a hub name (OWNER/NAME)"
    else:
        ended = launched("tests.training.test_processes", *asked, "scratch-tiny")
        expected = "error: the second one fails; do nothing"
        assert (
            "stopped, since another process has ended; the same command with --resume"
            in ended.stderr
        )
    assert ended.returncode
    said = ended.stderr.partition("torch/distributed/elastic")[0]
    assert [
        line for line in ended.stderr.splitlines() if line.startswith("error: ")
    ] == [expected]
    assert "Traceback" not in said


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
