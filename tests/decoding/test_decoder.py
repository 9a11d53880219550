"""Texts in, texts out: order, memory, batches, settings. What the engine computes is tested beside it."""

import json
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count, islice
from pathlib import Path

import pytest
import torch

import pipedec_cli
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Generated
from pipedec_cli.decoding import decoder
from pipedec_cli.decoding.batch_size import (
    MOST_ON_CPU,
    bytes_per_example,
    choose_batch_size,
)
from pipedec_cli.decoding.decoder import Decoder, load, window_of
from pipedec_cli.model.arguments import DTYPES, choose_device, choose_dtype
from pipedec_cli.model.checkpoint import Checkpoint, load_checkpoint
from pipedec_cli.pipeline.decode import Admitted, Finished, Stepped
from pipedec_cli.pipeline.grid import Limits, Method
from pipedec_cli.pipeline.schedule import Fixed, Waiting, Whole
from tests.checkpoints import SOURCES, TOLD, TOY, fresh_toy, tiny_checkpoint
from tests.fakes import EOS, ScriptedModel
from tests.words import refusing

SEGMENTS = [told for _, told in TOLD]


def tiny_decoder(folder, **settings):
    return Decoder(load_checkpoint(str(tiny_checkpoint(folder, **settings))))


@pytest.fixture(scope="module")
def pipelined(tmp_path_factory):
    return tiny_decoder(tmp_path_factory.mktemp("pipelined"))


@pytest.fixture(scope="module")
def sequential(tmp_path_factory):
    return tiny_decoder(
        tmp_path_factory.mktemp("sequential"), decoder="sequential", level="sentence"
    )


@pytest.mark.parametrize("delay", [1, 2, 3, "wait"])
def test_a_pipelined_checkpoint_tells_what_it_has_learnt_at_every_delay(
    pipelined, delay
):
    results = list(pipelined.texts(SOURCES, pipelined.method(delay)))
    assert [(one.index, one.segments, one.text, one.truncated) for one in results] == [
        (index, told, "; ".join(told), None) for index, told in enumerate(SEGMENTS)
    ]
    assert (
        delay == "wait" or results[3].steps < results[3].tokens
    )  # several subsequences at once


def test_texts_with_a_bound_are_cut_and_say_by_what(pipelined, sequential):
    def cut(decoder, **limits):
        return {
            result.truncated
            for result in decoder.texts(SOURCES, decoder.method(**limits))
        }

    assert cut(pipelined, time_max=3) == {"time_max"}
    assert "sub_max" in cut(pipelined, sub_max=2)
    assert cut(sequential, max_tokens=2) == {"max_tokens"}


def test_a_long_source_is_cut_and_that_is_said(pipelined):
    (before,) = pipelined.texts([SOURCES[0]])
    (after,) = Decoder(pipelined.checkpoint, max_source_tokens=5).texts([SOURCES[0]])
    assert after.source_ids == (*before.source_ids[:4], pipelined.checkpoint.eos)
    (long,) = pipelined.texts(["word " * 100_000])
    assert len(long.source_ids) == 2048
    assert (before.source_cut, after.source_cut, long.source_cut) == (False, True, True)


def test_the_seconds_of_an_example_leave_out_what_the_reader_of_its_events_takes(
    pipelined, monkeypatch
):
    now = [0.0]
    monkeypatch.setattr(decoder.time, "perf_counter", lambda: now[0])
    for item in pipelined.run(SOURCES, batch_size=2):
        if isinstance(item, Generated):
            assert item.seconds == 0.0
        else:
            now[0] += 100  # the live view, say, waits between two steps


def test_longest_sources_go_first_and_a_result_comes_as_soon_as_the_order_allows(
    pipelined,
):
    finished, lengths, due = set(), [], count()
    given, usual = (
        next(due),
        [len(pipelined.text.source(source)[0]) for source in SOURCES * 2],
    )
    for item in pipelined.run(SOURCES * 2, batch_size=3):
        if isinstance(item, Generated):
            assert item.index == given
            given = next(due)
            continue
        assert given not in finished, "the next result was there and did not come"
        if isinstance(item, Finished):
            finished.add(item.example)
        elif isinstance(item, Admitted):
            lengths.append(usual[item.example])
    assert lengths == sorted(lengths, reverse=True) != usual


@pytest.mark.parametrize("batch_size", [1, 2])
def test_no_more_sources_are_read_than_a_window(pipelined, batch_size):
    read = count()
    endless = (SOURCES[number % len(SOURCES)] for number in read)
    window = window_of(batch_size)
    results = pipelined.texts(endless, batch_size=batch_size)
    assert len(list(islice(results, 3 * window))) == 3 * window
    assert next(read) <= 4 * window


def test_a_decoder_can_be_used_again_after_it_was_left_half_way(pipelined):
    run = pipelined.texts(SOURCES, batch_size=2)
    next(run)
    run.close()
    assert [
        result.segments for result in pipelined.texts(SOURCES, batch_size=2)
    ] == SEGMENTS


def test_delay_two_and_the_limits_that_were_trained_with_are_the_default_unless_it_waits(
    pipelined, tmp_path
):
    method = pipelined.method()
    assert (method.schedule, method.empty_rows) == (Fixed(2), "retry")
    assert method.limits == Limits(time_max=50, sub_max=20, max_tokens=None)
    waiting = pipelined.method("wait")  # bounded by tokens
    assert (waiting.schedule, waiting.limits) == (
        Waiting(),
        Limits(None, 20, max_tokens=512),
    )
    decoder = tiny_decoder(tmp_path, time_max=33, sub_max=9)
    assert decoder.method().limits == Limits(time_max=33, sub_max=9)
    assert decoder.method(time_max=7).limits.time_max == 7


def test_a_checkpoint_that_stops_on_repeat_does_so_where_subsequences_wait_too(
    tmp_path,
):
    decoder = tiny_decoder(tmp_path, empty_rows="stop", stop_on_repeat=True)
    rules = [
        (how.empty_rows, how.stop_on_repeat)
        for how in map(decoder.method, (1, 3, "wait"))
    ]
    assert rules == [("stop", True), ("stop", True), ("retry", True)]
    assert not decoder.method("wait", stop_on_repeat=False).stop_on_repeat
    assert (
        tiny_decoder(tmp_path / "other", empty_rows="stop").method("wait").empty_rows
        == "retry"
    )


def test_a_sequential_t5_has_no_delay(sequential, pipelined):
    assert sequential.method().schedule == Whole()
    with refusing():
        sequential.method(2)
    trained = pipelined.checkpoint
    stranger = Decoder(Checkpoint(trained.model, trained.tokenizer, None, "some/t5"))
    assert stranger.method().schedule == Whole()


def test_a_delay_that_was_not_trained_for_is_refused_with_the_reason_unless_forced(
    tmp_path,
):
    decoder = tiny_decoder(tmp_path, delay=1)
    assert decoder.method().schedule == Fixed(1)
    for delay in (2, "wait"):
        refused(lambda delay=delay: decoder.method(delay))
    assert decoder.method(2, force=True).schedule == Fixed(2)


def test_the_fingerprint_is_that_of_weights_settings_and_tokens_wherever_they_lie(
    tmp_path,
):
    first, second = (tiny_decoder(tmp_path / name).checkpoint for name in ("a", "b"))
    (tmp_path / "a" / "training.json").write_text("{}", encoding="utf-8")
    (tmp_path / "a" / "checkpoint-1").mkdir()
    (tmp_path / "a" / "checkpoint-1" / "model.safetensors").write_bytes(b"other")
    found = [Decoder(second).sha256]
    assert Decoder(first).sha256 == found[0] is not None
    (tmp_path / "b" / "chat_template.jinja").write_text("{{ messages }}")
    for name in (
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "chat_template.jinja",
    ):
        with (tmp_path / "b" / name).open("ab") as file:
            file.write(b" ")
        found.append(Decoder(second).sha256)
    assert len(set(found)) == 5
    # Where config.json does not tell <bos>, generation_config.json does, and counts;
    # else it has no say.
    config, defaults = (
        tmp_path / "b" / f"{name}config.json" for name in ("", "generation_")
    )
    for bos, start in ((0, 0), (0, 1), (None, 0), (None, 1)):
        told = json.loads(config.read_text()) | {"decoder_start_token_id": bos}
        config.write_text(
            json.dumps(
                {name: value for name, value in told.items() if value is not None}
            )
        )
        defaults.write_text(json.dumps({"decoder_start_token_id": start}))
        found.append(Decoder(second).sha256)
    assert found[-4] == found[-3]
    assert len(set(found)) == 8


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_package_loads_a_checkpoint_by_name_which_says_what_it_was_trained_on(
    trained, dtype
):
    assert pipedec_cli.load is load
    assert pipedec_cli.Decoder is Decoder
    decoder = pipedec_cli.load(
        Path(trained.name), batch_size=3, dtype=dtype, device="cpu"
    )
    assert decoder.checkpoint.model.dtype == getattr(torch, dtype)
    items = list(decoder.run([source for source, _ in TOY], decoder.method(2)))
    assert any(isinstance(item, pipedec_cli.Stepped) for item in items)
    results = [item for item in items if isinstance(item, pipedec_cli.Generated)]
    assert [result.segments for result in results] == [segments for _, segments in TOY]


# --- devices, dtypes and batch sizes: by name, or by what there is room for
# ---------------------------------

NO_DEVICES = [
    "tpu",
    "",
    "cuda:x",
    "cuda:",
    "cuda:-1",
    "cuda:0:1",
    "cpu:zero",
    "CPU",
    0,
    None,
    ["cpu"],
]
NOT_ONE = "there is no device {!r}; use auto, cpu, cuda or cuda:N"


@pytest.mark.parametrize(
    ("gpus", "name", "chosen"),
    [
        (0, "auto", "cpu"),
        (1, "auto", "cuda"),
        (1, "cuda:0", "cuda:0"),
        (1, "cpu", "cpu"),
        (0, "cuda", "cuda is not here; use --device cpu"),
        (0, "cuda:0", "cuda:0 is not here; use --device cpu"),
        (1, "cuda:1", "cuda:1 is not here; use --device cpu"),
        (1, "mps", "Apple's GPU is not supported; use --device cpu"),
        *((1, name, NOT_ONE.format(str(name))) for name in NO_DEVICES),
    ],
)
def test_a_device_is_chosen_by_name_or_by_what_there_is_or_refused(
    monkeypatch, gpus, name, chosen
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    try:
        found = str(choose_device(name))
    except UserError as error:
        found = str(error)
    assert found == chosen


def test_dtypes_are_chosen_by_name_and_the_batch_size_is_bounded_by_examples_and_machine():
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    for name, dtype in DTYPES.items():
        for device, others in ((gpu, ("int8", "int4", "stored")), (cpu, ("float16",))):
            if name not in others:
                assert choose_dtype(name, device) == dtype
    with pytest.raises(
        UserError, match="int8 is for the CPU; use bfloat16, or --device cpu"
    ):
        choose_dtype("int8", gpu)
    with pytest.raises(
        UserError, match="float16 is not for the CPU; use bfloat16 or float32"
    ):
        choose_dtype("float16", cpu)
    model = fresh_toy().model
    assert choose_batch_size(model, 100, 3) == 3
    assert choose_batch_size(model, 100, 10_000) == MOST_ON_CPU
    assert choose_batch_size(model, 1_000_000, 10_000) == 1  # more memory than there is
    short, long = bytes_per_example(model, 128), bytes_per_example(model, 2048)
    assert 0 < short < long / 16  # the scores of the encoder grow with the square


def test_of_a_text_that_repeated_itself_the_time_of_every_call_is_told(
    tmp_path, monkeypatch
):
    decoder = tiny_decoder(tmp_path, empty_rows="stop", stop_on_repeat=True)
    told = [[5, 6], [7], [5, 6], [7, 5, 6, 7]]
    monkeypatch.setattr(
        decoder, "engine", lambda size: ScriptedModel(defaultdict(lambda: told))
    )
    (plain,) = decoder.texts(["x"], decoder.method(3))
    assert not (plain.stopped_on_repeat or plain.calls)
    told[3] = told[1]
    (made,) = decoder.texts(["x"], decoder.method(3))
    assert made.stopped_on_repeat and [tokens for _, tokens in made.grid] == [
        (5, 6, EOS),
        (7, EOS),
    ]
    assert (
        len(made.calls) == made.steps > len({*range(1, 3), 4, 5})
    )  # more than the rows that stayed took


# --- Runs that overlap


def lively_toy():
    """A model of random weights that writes another text for each source."""
    checkpoint = fresh_toy()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        for weights in checkpoint.model.parameters():
            weights.normal_(std=0.3)
    return checkpoint


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_run_within_a_run_of_the_same_decoder_changes_no_text(batch_size):
    decoder = Decoder(lively_toy(), batch_size=batch_size)
    expected = [result.grid for result in decoder.texts(SOURCES)]
    assert len({*expected}) == len(SOURCES)
    made = []
    for event in decoder.run(SOURCES):
        if isinstance(event, Generated):
            made.append(event.grid)
        elif isinstance(event, Stepped) and event.step.number == 2:
            inner = decoder.texts(SOURCES[::-1])
            assert [result.grid for result in inner] == expected[::-1]
    assert made == expected


def test_threads_that_share_a_new_decoder_get_the_texts_of_their_own_sources():
    shared = Decoder(lively_toy())
    with ThreadPoolExecutor(4) as team:
        runs = [team.submit(list, shared.texts(SOURCES)) for _ in range(4)]
    expected = [result.grid for result in Decoder(lively_toy()).texts(SOURCES)]
    for run in runs:
        assert [result.grid for result in run.result()] == expected


# --- What cannot be meant is refused in one line, and nothing is put in its place
# -----------------------------

NUMBERS = (0, -3, 1.5, 2.0, True, False, "3", [2], 10**7, float("nan"))


def refused(call):
    with refusing():
        call()


@pytest.mark.parametrize("value", NUMBERS)
def test_numbers_are_whole_and_from_one_on(pipelined, value):
    calls = {
        name: partial(pipelined.method, **{name: value})
        for name in ("delay", "time_max", "sub_max", "max_tokens")
    }
    for name in ("batch_size", "max_source_tokens"):
        calls[name] = partial(Decoder, pipelined.checkpoint, **{name: value})
    for call in calls.values():
        refused(call)
    for call in (
        lambda: list(pipelined.texts(SOURCES, batch_size=value)),
        lambda: pipelined.engine(value),
    ):
        refused(call)


@pytest.mark.parametrize(
    "asked",
    [
        *({"delay": delay} for delay in ("often", "", "2", "WAIT")),
        {"empty_rows": "retract"},
    ],
)
def test_other_delays_and_rules_are_refused(pipelined, asked):
    with refusing():
        pipelined.method(**asked)


@pytest.mark.parametrize(
    "sources",
    ["abc", b"abc", 5, None, *(["a", item] for item in (None, 3, b"a", ["a"]))],
)
def test_sources_are_texts_and_one_text_is_not_taken_for_its_letters(
    pipelined, sources
):
    refused(lambda: list(pipelined.texts(sources, batch_size=2)))


def test_a_method_is_one_and_its_ids_are_the_models(pipelined):
    refused(lambda: list(pipelined.texts(SOURCES, 2)))
    beyond = Method(Fixed(2), 427, 1)
    refused(lambda: list(pipelined.texts(SOURCES, beyond)))


@pytest.mark.parametrize("wrong", ["int3", 3, [1], torch.float32])
def test_dtypes_and_devices_that_are_not_there_are_refused(trained, wrong):
    refused(lambda: load(trained.name, dtype=wrong, device="cpu"))
    refused(lambda: load(trained.name, device=wrong))
