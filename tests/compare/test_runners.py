"""Our decoders as runners: on the engine, on forced lengths, in exact mode, in chats; here and in a child process."""

import importlib
import json
import time
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.compare.peers import make_peer
from pipedec_cli.compare.runners import (
    SEPARATOR,
    EngineRunner,
    ExactRunner,
    Lengths,
    Metered,
    make_runner,
)
from pipedec_cli.compare.timing import time_together
from pipedec_cli.decoding.decoder import load
from pipedec_cli.decoding.exact import ExactDecoder
from pipedec_cli.pipeline.decode import Finished, decode
from tests.checkpoints import SOURCES, TOLD, tiny_checkpoint
from tests.compare.decoders import FakeClock
from tests.model.chats import foreign
from tests.words import refusing

BOS, EOS = 0, 1


@pytest.fixture(scope="module")
def decoders(tmp_path_factory):
    """A pipelined decoder, and an ordinary T5 that makes another prefix of the same source."""
    folder = tmp_path_factory.mktemp("runners")
    kinds = ("sequential", "pipelined")
    return {
        kind: load(tiny_checkpoint(folder / kind, decoder=kind), consume=False)
        for kind in kinds
    }


@pytest.fixture(scope="module")
def decoder(decoders):
    return decoders["pipelined"]


@pytest.fixture(scope="module")
def ids(decoder):
    return [decoder.text.source(source)[0] for source, _ in TOLD]


def remade(runner):
    """The runner that a child process would make."""
    factory, payload = runner.spec()
    module, _, name = factory.partition(":")
    return getattr(importlib.import_module(module), name)(
        **json.loads(json.dumps(payload))
    )


def test_outputs_are_the_same_in_batches_and_one_at_a_time(decoder, ids):
    runner = EngineRunner(decoder, {"delay": 2})
    alone = [runner.run([source], 1, time.perf_counter).outputs[0] for source in ids]
    together = runner.run(ids, 4, time.perf_counter)
    assert list(together.outputs) == alone
    assert together.calls < sum(output.steps for output in alone)
    for output, (_, segments) in zip(alone, TOLD, strict=True):
        assert decoder.text.decode(output.tokens).split() == " ".join(segments).split()


def test_parts_add_up_to_no_more_than_the_whole(decoder, ids):
    contest = {"a": (EngineRunner(decoder, {"delay": 1}), ids)}
    found = time_together(contest, repeats=1, rest=lambda: None)["a"]
    assert found.encoder_seconds > 0 and found.setup_seconds >= 0
    parts = found.encoder_seconds + found.setup_seconds + found.decoding_seconds
    assert parts == pytest.approx(found.seconds)
    assert found.decoder_calls == sum(output.steps for output in found.outputs)


def test_settings_have_the_schedule_and_a_child_process_decodes_in_the_same_way(
    decoder, ids, tmp_path
):
    runner = EngineRunner(decoder, {"delay": 3, "empty_rows": "stop"})
    shown = [
        runner.settings[name]
        for name in ("schedule", "empty_rows", "time_max", "dtype")
    ]
    assert shown == ["delay3", "stop", "50", "float32"]
    again = remade(runner)
    assert again.settings == runner.settings
    made = [one.run(ids, 2, time.perf_counter).outputs for one in (again, runner)]
    assert made[0] == made[1]
    with refusing():
        EngineRunner(load(tiny_checkpoint(tmp_path / "fixed", delay=1)), {"delay": 2})


# ---- exact mode
# ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("draft", ["pipelined", "source", "jacobi"])
def test_the_tokens_are_the_plain_ones_and_drafting_counts(decoders, draft, size):
    plain = decoders["sequential"]
    exact = ExactDecoder(plain, decoders.get(draft, draft))
    runner = make_runner(exact, {"delay": 1})
    assert isinstance(runner, ExactRunner)
    sources = [*map(runner.read, SOURCES)]
    usual_runner = EngineRunner(plain, {})
    own = [*map(usual_runner.read, SOURCES)]
    contest = {"exact": (runner, sources), "plain": (usual_runner, own)}
    found = time_together(contest, batch_size=size, repeats=1, rest=lambda: None)
    made, usual = found["exact"], found["plain"]
    assert (
        tokens_of(made)
        == tokens_of(usual)
        == tokens_of(remade(runner).run(sources, size, time.perf_counter))
    )
    assert (made.draft_calls > 0, usual.draft_calls) == (draft == "pipelined", 0)
    assert made.decoder_calls - made.draft_calls <= usual.decoder_calls
    assert made.rows_per_call >= usual.rows_per_call
    if size == 1:
        assert made.decoder_calls == sum(output.steps for output in made.outputs)
        assert usual.rows_per_call == 1


def tokens_of(made):
    return [output.tokens for output in made.outputs]


def test_a_source_is_in_the_ids_of_both_models(decoders):
    exact = ExactDecoder(decoders["sequential"], decoders["pipelined"])
    own = decoders["sequential"].text.source(SOURCES[0])[0]
    theirs = decoders["pipelined"].text.source(SOURCES[0])[0]
    both = make_runner(exact, {"delay": 1})
    assert both.read(SOURCES[0]) == [*own, SEPARATOR, *theirs]
    alone = make_runner(ExactDecoder(decoders["sequential"], "source"), {})
    assert alone.read(SOURCES[0]) == own


# ---- forced lengths: every decoder makes exactly so many tokens, and computes every
# step -----------------------------


@pytest.mark.parametrize(
    "token", [EOS, 7]
)  # a model that wants to end everything at once, or nothing ever
@pytest.mark.parametrize("sequences", [1, 3])
@given(
    targets=st.lists(st.integers(1, 6), min_size=1, max_size=5), delay=st.integers(1, 3)
)
def test_each_subsequence_has_its_length_whatever_the_model_says(
    token, sequences, targets, delay
):
    model = Mock(step=lambda rows: [token] * len(rows))
    method = Lengths(4, tuple(targets), "").method(BOS, EOS, delay)
    metered = Metered(model, time.perf_counter, targets, EOS)
    events = decode(metered, enumerate([[5, EOS]] * 4), method, sequences)
    finished = [event for event in events if isinstance(event, Finished)]
    assert len(finished) == 4
    for event in finished:
        assert [len(text) for text in event.texts] == targets
        assert event.grid.truncated is None


@given(source=st.integers(2, 50), count=st.integers(1, 9), more=st.integers(0, 30))
def test_even_lengths_add_up_and_differ_by_one_at_most(source, count, more):
    lengths = Lengths.even(source, count, count + more)
    assert lengths.tokens == count + more
    assert len(lengths.targets) == count
    assert max(lengths.targets) - min(lengths.targets) <= 1


def test_a_data_sets_lengths_are_the_papers_words_as_tokens():
    lengths = Lengths.of_dataset("wikihowqa", 512)
    assert (lengths.source, lengths.tokens, len(lengths.targets)) == (
        512,
        99,
        8,
    )  # 74.5 words · 4/3, 7.8
    assert "Table 1" in lengths.line


def test_sources_have_their_length_and_end_once():
    lengths = Lengths.even(9, 1, 1)
    made = lengths.sources(3, 40, EOS)
    assert made == lengths.sources(3, 40, EOS) != lengths.sources(3, 40, EOS, seed=1)
    assert all(len(source) == 9 and source.index(EOS) == 8 for source in made)
    prompts = lengths.sources(3, 40, None)
    assert all(len(prompt) == 9 and EOS not in prompt for prompt in prompts)


LENGTHS = Lengths.even(6, 3, 7)


@pytest.mark.slow
def test_a_prompt_is_read_in_the_encoders_place_and_its_last_token_opens_the_plain_text(
    tmp_path,
):
    decoder = load(tiny_checkpoint(tmp_path / "llama", family="llama"), consume=False)
    clock, engine = FakeClock(), decoder.engine()
    read, seen = engine.admit, []

    def admit(newcomers):
        clock.pass_by(2.0)
        seen.extend(len(source) for _, source in newcomers)
        read(newcomers)

    engine.admit = admit
    for delay, prompt, calls in ((None, 5, 8), (1, 6, 5)):
        made = EngineRunner(decoder, {"delay": delay}, LENGTHS).run(
            [[7, 8, 9, 7, 8, 9]], 1, clock
        )
        assert (made.encoder_seconds, made.setup_seconds, made.calls) == (
            2.0,
            None,
            calls,
        )
        assert seen.pop() == prompt


@pytest.mark.parametrize(
    ("lengths", "delay", "tokens", "calls"),
    [
        (LENGTHS, None, 7, 8),
        (LENGTHS, 1, 7, 5),
        (LENGTHS, 2, 7, 7),
        # Fields are forced behind their keys; the plain text has a length of its own.
        (Lengths.of_fields(9), "together", 36, 4),
        (Lengths.of_fields(9), None, 84, 85),
    ],
)
def test_our_decoders_make_these_lengths_on_any_checkpoint_in_a_child_process_too(
    decoder, lengths, delay, tokens, calls
):
    runner = EngineRunner(decoder, {"delay": delay}, lengths)
    vocabulary = decoder.checkpoint.model.config.vocab_size
    sources = lengths.sources(3, vocabulary, decoder.checkpoint.eos)
    made = runner.run(sources, 2, time.perf_counter)
    assert [len(output.tokens) for output in made.outputs] == [tokens] * 3
    assert {output.steps for output in made.outputs} == {calls}
    if delay == "together":
        assert made.rows == 3 * (12 * 3 + 2 * 12 + 12)
    again = remade(runner).run(sources, 2, time.perf_counter)
    assert again.outputs == made.outputs


def test_lengths_are_told():
    written = "36 target tokens in 12 subsequences of 3; 84 in the plain text"
    assert written in Lengths.of_fields(9).line


# ---- chats with a model that is not ours end in a child process where they end here
# ----------------------------------


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    found = load(foreign(tmp_path_factory.mktemp("chat")), device="cpu", consume=False)
    found.read_sources(chat=True)
    return found


@pytest.mark.parametrize("kind", ["sequential", "exact", "transformers"])
def test_a_turn_ends_in_a_child_as_here(chat, tmp_path, kind):
    runner = {
        "sequential": lambda: EngineRunner(chat, {}),
        "exact": lambda: make_runner(ExactDecoder(chat, "source"), {}),
        "transformers": lambda: make_peer("transformers", chat.checkpoint, tmp_path),
    }[kind]()
    again = remade(runner)
    checkpoint = (
        again.checkpoint if kind == "transformers" else again.decoder.checkpoint
    )
    assert checkpoint.eos == chat.checkpoint.tokenizer.convert_tokens_to_ids(
        "<|im_end|>"
    )
    if kind == "sequential":
        assert again.method.eos == checkpoint.eos
