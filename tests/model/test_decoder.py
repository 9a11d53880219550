"""Texts in, texts out: order, memory, batches, settings. What the engine computes is tested beside it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch

import pipedec_cli
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Generated
from pipedec_cli.model.checkpoint import Checkpoint, load_checkpoint
from pipedec_cli.model.decoder import SORTED_BATCHES, Decoder, fingerprint, load
from pipedec_cli.pipeline.decode import Admitted, Finished, Stepped
from pipedec_cli.pipeline.schedule import Fixed, Waiting, Whole
from tests.checkpoints import SOURCES, TOLD, TOY, tiny_checkpoint


@pytest.fixture(scope="module")
def pipelined(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return load_checkpoint(str(tiny_checkpoint(tmp_path_factory.mktemp("pipelined"))))


@pytest.fixture(scope="module")
def sequential(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("sequential")
    return load_checkpoint(str(tiny_checkpoint(folder, decoder="sequential", level="sentence")))


def comparable(results: list[Generated]) -> list[tuple[object, ...]]:
    """All of a result but for its time."""
    return [
        (r.index, r.text, r.segments, r.steps, r.tokens, r.truncated, r.grid, r.source_ids) for r in results
    ]


# --- what comes out -------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_a_pipelined_checkpoint_tells_what_it_has_learnt_at_every_delay(
    pipelined: Checkpoint, delay: int
) -> None:
    decoder = Decoder(pipelined)
    results = list(decoder.texts(SOURCES, decoder.method(delay)))
    assert [result.segments for result in results] == [told for _, told in TOLD]
    assert [result.text for result in results] == ["; ".join(told) for _, told in TOLD]
    assert [result.index for result in results] == list(range(len(TOLD)))
    assert all(result.truncated is None for result in results)


def test_a_sequential_checkpoint_tells_it_whole_and_has_it_cut_into_sentences(sequential: Checkpoint) -> None:
    results = list(Decoder(sequential).texts(SOURCES))
    assert [result.text for result in results] == [" ".join(told) for _, told in TOLD]
    assert results[0].segments == TOLD[0][1]
    assert all(result.steps == result.tokens + 1 for result in results)


def test_several_subsequences_take_fewer_steps_than_they_have_tokens(pipelined: Checkpoint) -> None:
    (long,) = Decoder(pipelined).texts([SOURCES[3]])
    assert long.steps < long.tokens / 2


@pytest.mark.parametrize("delay", [1, 2, "wait", "sequential"])
@pytest.mark.parametrize("batch_size", [2, 3, 50])
def test_the_batch_size_changes_nothing_but_the_time(
    pipelined: Checkpoint, batch_size: int, delay: int | str
) -> None:
    one, many = Decoder(pipelined), Decoder(pipelined, batch_size=batch_size)
    expected = list(one.texts(SOURCES, one.method(delay)))  # type: ignore[arg-type]
    assert comparable(list(many.texts(SOURCES, many.method(delay)))) == comparable(expected)  # type: ignore[arg-type]


def test_the_grid_holds_what_the_steps_made(pipelined: Checkpoint) -> None:
    decoder = Decoder(pipelined, batch_size=2)
    made: dict[int, dict[tuple[int, int], int]] = {}
    results = {}
    for item in decoder.run(SOURCES, decoder.method(2)):
        if isinstance(item, Stepped):
            cells = made.setdefault(item.example, {})
            cells |= {(slot.subsequence, slot.time): slot.token for slot in item.step.made}
        elif isinstance(item, Generated):
            results[item.index] = item
    for index, result in results.items():
        drawn = {
            (number, start + place): token
            for number, (start, tokens) in enumerate(result.grid, start=1)
            for place, token in enumerate(tokens, start=1)
        }
        assert drawn == made[index]
        assert [start for start, _ in result.grid] == list(range(0, 2 * len(result.grid), 2))
        assert result.empty == sum(tokens == (pipelined.eos,) for _, tokens in result.grid) > 0


def test_texts_with_a_bound_are_cut_and_say_by_what(pipelined: Checkpoint, sequential: Checkpoint) -> None:
    def cut(checkpoint: Checkpoint, **limits: int) -> set[str | None]:
        decoder = Decoder(checkpoint)
        return {result.truncated for result in decoder.texts(SOURCES, decoder.method(**limits))}

    assert cut(pipelined, time_max=3) == {"time_max"}
    assert "sub_max" in cut(pipelined, sub_max=2)
    assert cut(sequential, max_tokens=2) == {"max_tokens"}


# --- sources --------------------------------------------------------------------------------------------


def test_a_long_source_is_cut_and_what_was_cut_is_counted(pipelined: Checkpoint) -> None:
    whole = Decoder(pipelined)
    (before,) = whole.texts([SOURCES[0]])
    (after,) = Decoder(pipelined, max_source_tokens=5).texts([SOURCES[0]])
    assert before.source_cut == 0
    assert after.source_ids == (*before.source_ids[:4], pipelined.eos)
    assert after.source_cut == len(before.source_ids) - 5


def test_a_hundred_thousand_words_are_cut_to_the_limit(pipelined: Checkpoint) -> None:
    (result,) = Decoder(pipelined).texts(["word " * 100_000])
    assert len(result.source_ids) == 2048
    assert result.source_cut > 90_000


@pytest.mark.parametrize(
    "hostile", ["</s>", "<pad>", "<unk> </s> <pad>", "[red]a[/red]", "\x1b[31m", "a\x00b", "😀", " \n\t "]
)
def test_hostile_text_is_text(pipelined: Checkpoint, hostile: str) -> None:
    decoder = Decoder(pipelined)
    (result,) = decoder.texts([f"{SOURCES[0]} {hostile}"])
    assert pipelined.eos not in result.source_ids[:-1]
    assert pipelined.bos not in result.source_ids
    assert decoder.text.decode(result.source_ids[:-1]) == f"{SOURCES[0]} {hostile}".strip()


def test_longest_sources_go_first_and_results_come_in_input_order(pipelined: Checkpoint) -> None:
    decoder = Decoder(pipelined, batch_size=2)
    admitted, given = [], []
    for item in decoder.run(SOURCES, decoder.method()):
        if isinstance(item, Admitted):
            admitted.append(item.example)
        elif isinstance(item, Generated):
            given.append(item.index)
    lengths = [len(decoder.text.source(SOURCES[index])[0]) for index in admitted]
    assert lengths == sorted(lengths, reverse=True) != [len(decoder.text.source(s)[0]) for s in SOURCES]
    assert given == sorted(given) == list(range(len(SOURCES)))


def test_a_result_comes_as_soon_as_the_order_allows(pipelined: Checkpoint) -> None:
    decoder = Decoder(pipelined, batch_size=3)
    finished: set[int] = set()
    given = 0
    for item in decoder.run(SOURCES * 2, decoder.method()):
        if isinstance(item, Generated):
            given += 1
            continue
        assert given not in finished, "the next result was there and did not come"
        if isinstance(item, Finished):
            finished.add(item.example)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_no_more_sources_are_read_than_a_window(pipelined: Checkpoint, batch_size: int) -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield SOURCES[read % len(SOURCES)]

    window = 1 if batch_size == 1 else batch_size * SORTED_BATCHES
    results = Decoder(pipelined, batch_size=batch_size).texts(endless())
    assert len(list(islice(results, 3 * window))) == 3 * window
    assert read <= 4 * window


def test_a_decoder_can_be_used_again_after_it_was_left_half_way(pipelined: Checkpoint) -> None:
    decoder = Decoder(pipelined, batch_size=2)
    run = decoder.texts(SOURCES)
    next(run)
    run.close()  # type: ignore[attr-defined]
    assert [result.segments for result in decoder.texts(SOURCES)] == [told for _, told in TOLD]


# --- how to decode --------------------------------------------------------------------------------------


def test_a_checkpoint_for_any_delay_takes_two_and_the_papers_limits(pipelined: Checkpoint) -> None:
    method = Decoder(pipelined).method()
    assert method.schedule == Fixed(2)
    assert method.explore == "retry"
    assert (method.limits.time_max, method.limits.sub_max, method.limits.max_tokens) == (50, 20, None)


def test_limits_that_were_trained_with_are_the_default(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(str(tiny_checkpoint(tmp_path, time_max=33, sub_max=9)))
    assert (Decoder(checkpoint).method().limits.time_max, Decoder(checkpoint).method().limits.sub_max) == (
        33,
        9,
    )
    assert Decoder(checkpoint).method(time_max=7).limits.time_max == 7


def test_the_sequential_schedule_is_bounded_by_tokens(pipelined: Checkpoint) -> None:
    method = Decoder(pipelined).method("wait")
    assert method.schedule == Waiting()
    assert Decoder(pipelined).method("sequential") == method  # the older name
    assert (method.limits.time_max, method.limits.sub_max, method.limits.max_tokens) == (None, None, 512)


def test_an_ordinary_t5_has_no_delay(sequential: Checkpoint) -> None:
    assert Decoder(sequential).method().schedule == Whole()
    with pytest.raises(UserError, match="is an ordinary T5 and has no delay"):
        Decoder(sequential).method(2)


def test_a_checkpoint_of_nobodys_training_is_an_ordinary_t5(pipelined: Checkpoint) -> None:
    stranger = Checkpoint(pipelined.model, pipelined.tokenizer, None, "some/t5")
    assert Decoder(stranger).method().schedule == Whole()


def test_a_delay_that_was_not_trained_for_is_refused_with_the_reason_unless_insisted_on(
    tmp_path: Path,
) -> None:
    checkpoint = load_checkpoint(str(tiny_checkpoint(tmp_path, delay=1)))
    assert Decoder(checkpoint).method().schedule == Fixed(1)
    for delay in (2, "wait", "sequential"):
        with pytest.raises(UserError, match="was trained for delay 1 only") as raised:
            Decoder(checkpoint).method(delay)  # type: ignore[arg-type]
        assert raised.value.todo is not None
        assert "--untrained-delay" in raised.value.todo
    assert Decoder(checkpoint).method(2, untrained=True).schedule == Fixed(2)


# --- which weights --------------------------------------------------------------------------------------


def test_the_fingerprint_is_that_of_the_weights_wherever_they_lie(tmp_path: Path) -> None:
    first, second = (load_checkpoint(str(tiny_checkpoint(tmp_path / name))) for name in ("a", "b"))
    (tmp_path / "a" / "training.json").write_text("{}", encoding="utf-8")
    (tmp_path / "a" / "checkpoint-1").mkdir()
    (tmp_path / "a" / "checkpoint-1" / "model.safetensors").write_bytes(b"other")
    assert fingerprint(first) == fingerprint(second) == Decoder(second).sha256


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_other_weights_settings_or_tokens_have_another_fingerprint(tmp_path: Path, name: str) -> None:
    checkpoint = load_checkpoint(str(tiny_checkpoint(tmp_path)))
    before = fingerprint(checkpoint)
    with (tmp_path / name).open("ab") as file:
        file.write(b" ")
    assert fingerprint(checkpoint) != before


# --- from Python ----------------------------------------------------------------------------------------


def test_the_package_loads_a_checkpoint_by_name(trained: Checkpoint) -> None:
    assert pipedec_cli.load is load
    assert pipedec_cli.Generator is pipedec_cli.Decoder is Decoder
    decoder = pipedec_cli.load(Path(trained.name), batch_size=3, device="cpu")
    results = list(decoder.texts([source for source, _ in TOY]))
    assert [result.segments for result in results] == [segments for _, segments in TOY]
    assert [result.text for result in results] == ["; ".join(segments) for _, segments in TOY]


def test_the_dtype_is_that_of_the_weights(trained: Checkpoint) -> None:
    decoder = load(trained.name, dtype="bfloat16", device="cpu")
    assert decoder.checkpoint.model.dtype == torch.bfloat16
    assert next(iter(decoder.texts(["white 6"]))).segments == TOY[8][1]


def test_the_steps_of_the_grid_can_be_watched(trained: Checkpoint) -> None:
    decoder = load(trained.name, device="cpu")
    items = list(decoder.run(["blue 2 white 2"], decoder.method(2)))
    steps = [item.step.number for item in items if isinstance(item, pipedec_cli.Stepped)]
    (result,) = (item for item in items if isinstance(item, pipedec_cli.Generated))
    assert steps == list(range(1, result.steps + 1))
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
        load(**{"name": trained.name, "device": "cpu", **options})  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
