"""Peak memory, measured in child processes that do nothing but take some."""

import gc
import sys

import pytest

from pipedec_cli.evaluate.memory import MeasuringError, Memory, measure_here, measure_peak

MIB = 2**20
HERE = "tests.evaluate.test_memory"


def take(ready, work):
    """Hold `ready` MiB from the beginning, and take `work` MiB more for a moment."""
    held = bytearray(b"x") * (ready * MIB)

    def work_off():
        taken = bytearray(b"x") * (work * MIB)
        return len(held) + len(taken)

    return work_off


def take_while_loading(loading, work):
    """Take much while loading, and let go of it."""
    taken = bytearray(b"x") * (loading * MIB)
    del taken
    gc.collect()
    return take(0, work)


def fail():
    raise ValueError("no such model")


def test_peak_holds_what_the_work_took_for_a_moment():
    memory = measure_peak(f"{HERE}:take", {"ready": 10, "work": 80})
    assert memory.added_bytes == pytest.approx(80 * MIB, rel=0.1)


def test_what_was_there_before_the_work_is_ready_memory():
    little = measure_peak(f"{HERE}:take", {"ready": 1, "work": 1})
    much = measure_peak(f"{HERE}:take", {"ready": 81, "work": 1})
    assert much.ready_bytes - little.ready_bytes == pytest.approx(80 * MIB, rel=0.1)
    assert much.added_bytes < 10 * MIB


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can set the peak back")
def test_what_loading_took_is_no_part_of_the_peak():
    memory = measure_peak(f"{HERE}:take_while_loading", {"loading": 200, "work": 20})
    if "loading included" in memory.counter:
        pytest.skip("this kernel does not let a process set its peak back")
    assert memory.added_bytes == pytest.approx(20 * MIB, rel=0.2)


def test_child_that_fails_says_why():
    with pytest.raises(MeasuringError, match="no such model"):
        measure_peak(f"{HERE}:fail", {})


def test_peak_in_this_process_is_no_less_than_what_was_there():
    memory = measure_here(lambda: None)
    assert memory.peak_bytes >= memory.ready_bytes > 0


def test_memory_is_saved_as_plain_values():
    assert Memory(1, 3, "c").as_json() == {"ready_bytes": 1, "peak_bytes": 3, "counter": "c"}
    assert Memory(1, 3, "c").added_bytes == 2


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 8])
def test_the_peak_does_not_grow_with_the_number_of_examples(tmp_path, batch_size):
    """What is in flight bounds it: ten times the examples take no more, but for what an allocator may do."""
    from pipedec_cli.evaluate.contenders import DecodingChoice, EngineDecoder
    from pipedec_cli.evaluate.forced import Lengths
    from pipedec_cli.model.checkpoint import load_checkpoint
    from pipedec_cli.model.decoder import Decoder
    from tests.checkpoints import tiny_checkpoint

    checkpoint = load_checkpoint(str(tiny_checkpoint(tmp_path / "tiny")))
    lengths = Lengths.even(100, 5, 60)
    decoder = EngineDecoder("flat", Decoder(checkpoint), DecodingChoice(delay=2), lengths=lengths)
    sources = lengths.sources(200, checkpoint.model.config.vocab_size, checkpoint.eos)

    few = measure_peak(*decoder.blueprint(sources[:20], batch_size))
    many = measure_peak(*decoder.blueprint(sources, batch_size))

    assert many.added_bytes < few.added_bytes + 4_000_000
