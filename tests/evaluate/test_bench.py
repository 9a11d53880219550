"""A bench compares like with like."""

from __future__ import annotations

import json

from pipedec_cli.evaluate.bench import Bench, BenchEntry
from pipedec_cli.evaluate.forced import Lengths
from pipedec_cli.evaluate.machine import Machine
from pipedec_cli.evaluate.timing import Lap, Output, Timing

MACHINE = Machine("a processor", 2, 2, 2, 1 << 30, None, "Linux x86_64", "3.11")


def timing(name, seconds, calls, size=1):
    outputs = (Output((5,) * 10, calls),) * size
    return Timing(name, size, (Lap(seconds + 1.0, 1.0, 0.0),), calls, outputs)


def entry(name, kind, dtype, sizes):
    return BenchEntry(
        name, kind, dtype, {}, {size: timing(name, *given, size) for size, given in sizes.items()}
    )


def bench(*entries):
    return Bench(
        "m", Lengths.even(5, 2, 10), entries, (), (1e9,), "a test", (), 1, "cpu", MACHINE, {"torch": "2"}
    )


def test_ours_are_set_against_the_sequential_decoder_of_the_same_dtype_and_against_every_peer():
    made = bench(
        entry("sequential", "sequential", "float32", {1: (10.0, 11)}),
        entry("Δt = 1", "pipelined", "float32", {1: (3.0, 5)}),
        entry("sequential, bfloat16", "sequential", "bfloat16", {1: (5.0, 11)}),
        entry("Δt = 1, bfloat16", "pipelined", "bfloat16", {1: (1.0, 5)}),
        entry("theirs", "peer", "float32", {1: (21.0, 11)}),
    )

    found = {(ratio.name, ratio.over): ratio.gain for ratio in made.ratios}

    assert set(found) == {
        ("sequential", "theirs"),
        ("Δt = 1", "sequential"),
        ("Δt = 1", "theirs"),
        ("sequential, bfloat16", "theirs"),
        ("Δt = 1, bfloat16", "sequential, bfloat16"),
        ("Δt = 1, bfloat16", "theirs"),
    }
    assert found["Δt = 1", "sequential"].speedup == 11 / 4
    assert found["Δt = 1", "sequential"].decoding == 10 / 3
    assert found["Δt = 1, bfloat16", "sequential, bfloat16"].speedup == 6 / 2
    assert found["Δt = 1, bfloat16", "theirs"].speedup == 22 / 2
    assert found["Δt = 1", "sequential"].fewer_calls == 11 / 5


def test_batch_sizes_stand_by_themselves_and_a_peer_may_lack_one():
    made = bench(
        entry("sequential", "sequential", "float32", {1: (10.0, 11), 4: (20.0, 11)}),
        entry("Δt = 1", "pipelined", "float32", {1: (3.0, 5), 4: (6.0, 5)}),
        entry("theirs", "peer", "float32", {1: (21.0, 11)}),
    )

    assert [(ratio.name, ratio.over, ratio.batch_size) for ratio in made.ratios] == [
        ("sequential", "theirs", 1),
        ("Δt = 1", "sequential", 1),
        ("Δt = 1", "theirs", 1),
        ("Δt = 1", "sequential", 4),
    ]


def test_json_holds_everything_and_says_that_lengths_are_forced():
    content = json.loads(
        json.dumps(bench(entry("sequential", "sequential", "float32", {1: (1.0, 2)})).as_json())
    )

    assert content["lengths"]["forced"] is True
    assert content["decoders"][0]["speed"][0]["decoder_calls"] == 2
    assert content["bandwidth"] == {"reader": "a test", "bytes_per_second": [1e9], "median": 1e9}
    assert content["machine"]["processor"] == "a processor"
