"""A decoder in a child process: its answers, its end, and its peak memory."""

import gc
import sys

import psutil
import pytest

from pipedec_cli.compare.child import Child, ChildError, measure_here
from pipedec_cli.compare.runners import Lengths
from pipedec_cli.compare.timing import Output, Pass

MIB = 2**20
HERE = "tests.compare.test_child"


class Taking:
    """Holds `ready` MiB from the beginning, and takes `work` MiB more for a moment, after it took more while loading."""

    def __init__(self, ready=0, work=0, loading=0):
        taken = bytearray(b"x") * (loading * MIB)
        del taken
        gc.collect()
        sys.stdout.write("this is no answer\n")
        self.settings = {"ready": str(ready)}
        self.held = bytearray(b"x") * (ready * MIB)
        self.work = work

    def run(self, sources, batch_size, clock):
        if sources == [[0]]:
            raise IndexError("no such token")
        taken = bytearray(b"x") * (self.work * MIB)
        cost = len(taken) + batch_size
        return Pass(
            tuple(Output(tuple(source), cost, True) for source in sources), 7, 0.5, None
        )


def fail():
    raise ValueError("no such model")


def taking(**how):
    return Child(f"{HERE}:Taking", how)


def peak(**how):
    with taking(**how) as child:
        return child.peak([[5]], 1)


def test_child_answers_as_its_decoder_would_whatever_that_prints():
    with taking(ready=1) as child:
        assert child.settings == {"ready": "1", "process": "its own"}
        outputs = (Output((5, 6), 3, True), Output((7,), 3, True))
        assert child.run([(5, 6), (7,)], 3, None) == Pass(outputs, 7, 0.5, None)


def test_what_was_there_before_is_ready_memory_and_the_peak_holds_what_the_work_took_for_a_moment():
    little, much = peak(ready=1, work=80), peak(ready=81, work=1)
    assert little.peak_bytes - little.ready_bytes == pytest.approx(80 * MIB, rel=0.1)
    assert much.ready_bytes - little.ready_bytes == pytest.approx(80 * MIB, rel=0.1)
    assert much.peak_bytes - much.ready_bytes < 10 * MIB
    here = measure_here(lambda: None)
    assert here.peak_bytes >= here.ready_bytes > 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can set the peak back")
def test_what_loading_took_is_no_part_of_the_peak():
    memory = peak(loading=200, work=20)
    if "loading included" in memory.counter:
        pytest.skip("this kernel does not let a process set its peak back")
    assert memory.peak_bytes - memory.ready_bytes == pytest.approx(20 * MIB, rel=0.2)


def test_child_that_cannot_load_or_fails_says_why_and_goes_on_and_one_that_dies_is_an_error():
    with pytest.raises(ChildError, match="ValueError: no such model"):
        Child(f"{HERE}:fail", {})
    with taking() as child:
        with pytest.raises(ChildError, match="IndexError: no such token"):
            child.run([[0]], 1, None)
        assert child.run([[5]], 1, None).calls == 7
        child._process.kill()
        with pytest.raises(ChildError, match="process ended"):
            child.run([[5]], 1, None)


def test_child_ends_with_its_object():
    before = set(psutil.Process().children())
    child = taking()
    (process,) = set(psutil.Process().children()) - before
    assert process.is_running()
    del child
    gc.collect()
    assert not process.is_running()


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 8])
def test_the_peak_does_not_grow_with_the_number_of_examples(tmp_path, batch_size):
    """What is in flight bounds it: ten times the examples take no more, but for what an allocator may do."""
    # Imported here, because the children of the other tests import this file, and need
    # no torch.
    from pipedec_cli.compare.runners import EngineRunner
    from pipedec_cli.decoding.decoder import load
    from tests.checkpoints import tiny_checkpoint

    decoder = load(tiny_checkpoint(tmp_path / "tiny"))
    lengths = Lengths.even(100, 5, 60)
    runner = EngineRunner(decoder, {"delay": 2}, lengths)
    sources = lengths.sources(
        200, decoder.checkpoint.model.config.vocab_size, decoder.checkpoint.eos
    )

    def added(count):
        with Child(*runner.spec()) as child:
            memory = child.peak(sources[:count], batch_size)
        return memory.peak_bytes - memory.ready_bytes

    assert added(200) < added(20) + 4_000_000
