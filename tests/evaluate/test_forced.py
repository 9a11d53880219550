"""Forced lengths: every decoder makes exactly what it is told to, and computes every step."""

import json
import time
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.errors import UserError
from pipedec_cli.evaluate.peers import Absent, make_peer
from pipedec_cli.evaluate.runners import EngineRunner, ForcedAnswers, Lengths, from_spec
from pipedec_cli.model.decoder import load
from pipedec_cli.pipeline.decode import Finished, decode
from tests.checkpoints import tiny_checkpoint
from tests.evaluate.decoders import FakeClock

BOS, EOS = 0, 1


@pytest.mark.parametrize("token", [EOS, 7])  # a model that wants to end everything at once, or nothing ever
@pytest.mark.parametrize("sequences", [1, 3])
@given(targets=st.lists(st.integers(1, 6), min_size=1, max_size=5), delay=st.integers(1, 3))
def test_each_subsequence_has_its_length_whatever_the_model_says(token, sequences, targets, delay):
    model = Mock(step=lambda rows: [token] * len(rows))
    method = Lengths(4, tuple(targets), "").method(BOS, EOS, delay)
    events = decode(ForcedAnswers(model, targets, EOS), enumerate([[5, EOS]] * 4), method, sequences)
    finished = [event for event in events if isinstance(event, Finished)]
    assert len(finished) == 4
    for event in finished:
        assert [len(text) for text in event.texts] == targets
        assert event.grid.truncated is None


def test_the_model_is_asked_for_every_step():
    model = Mock(**{"step.side_effect": lambda rows: [EOS] * len(rows)})
    method = Lengths(4, (3, 2), "").method(BOS, EOS, None)
    list(decode(ForcedAnswers(model, (5,), EOS), [(0, [5])], method))
    assert model.step.call_count == 6  # five tokens and <eos>


@given(source=st.integers(2, 50), count=st.integers(1, 9), more=st.integers(0, 30))
def test_even_lengths_add_up_and_differ_by_one_at_most(source, count, more):
    lengths = Lengths.even(source, count, count + more)
    assert lengths.tokens == count + more
    assert len(lengths.targets) == count
    assert max(lengths.targets) - min(lengths.targets) <= 1


def test_a_data_sets_lengths_are_the_papers_words_as_tokens():
    lengths = Lengths.of_dataset("wikihowqa", 512)
    assert (lengths.source, lengths.tokens, len(lengths.targets)) == (512, 99, 8)  # 74.5 words · 4/3, 7.8
    assert "Table 1" in lengths.line
    with pytest.raises(UserError, match="the shapes are"):
        Lengths.of_dataset("xsum", 512)


@pytest.mark.parametrize(("source", "count", "tokens"), [(1, 1, 1), (5, 0, 3), (5, 4, 3)])
def test_lengths_that_cannot_be_are_refused(source, count, tokens):
    with pytest.raises(UserError, match="cannot be had"):
        Lengths.even(source, count, tokens)


def test_sources_have_their_length_and_end_once():
    lengths = Lengths.even(9, 1, 1)
    made = lengths.sources(3, 40, EOS)
    assert made == lengths.sources(3, 40, EOS) != lengths.sources(3, 40, EOS, seed=1)
    assert all(len(source) == 9 and source.index(EOS) == 8 for source in made)
    prompts = lengths.sources(3, 40, None)
    assert all(len(prompt) == 9 and EOS not in prompt for prompt in prompts)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    return load(tiny_checkpoint(tmp_path_factory.mktemp("forced") / "pipelined"), consume=False)


LENGTHS = Lengths.even(6, 3, 7)


def sources(decoder, count):
    return LENGTHS.sources(count, decoder.checkpoint.model.config.vocab_size, decoder.checkpoint.eos)


def test_a_prompt_is_read_in_the_encoders_place_and_its_last_token_opens_the_plain_text(tmp_path):
    decoder = load(tiny_checkpoint(tmp_path / "llama", family="llama"), consume=False)
    clock, engine = FakeClock(), decoder.engine()
    read, seen = engine.admit, []

    def admit(newcomers):
        clock.pass_by(2.0)
        seen.extend(len(source) for _, source in newcomers)
        read(newcomers)

    engine.admit = admit
    for delay, prompt, calls in ((None, 5, 8), (1, 6, 5)):
        made = EngineRunner(decoder, {"delay": delay}, LENGTHS).run([[7, 8, 9, 7, 8, 9]], 1, clock)
        assert (made.encoder_seconds, made.setup_seconds, made.calls) == (2.0, None, calls)
        assert seen.pop() == prompt


@pytest.mark.parametrize(("delay", "calls"), [(None, 8), (1, 5), (2, 7)])
def test_our_decoders_make_these_lengths_on_any_checkpoint_in_a_child_process_too(decoder, delay, calls):
    runner = EngineRunner(decoder, {"delay": delay}, LENGTHS)
    made = runner.run(sources(decoder, 3), 2, time.perf_counter)
    assert [len(output.tokens) for output in made.outputs] == [7, 7, 7]
    assert {output.steps for output in made.outputs} == {calls}
    again = from_spec(**json.loads(json.dumps(runner.spec()[1])))
    assert again.run(sources(decoder, 3), 2, time.perf_counter).outputs == made.outputs


def test_fields_are_forced_behind_their_keys_and_the_plain_text_has_a_length_of_its_own(decoder):
    lengths = Lengths.of_fields(9)
    assert "36 target tokens in 12 subsequences of 3; 84 in the plain text" in lengths.line
    some = lengths.sources(2, decoder.checkpoint.model.config.vocab_size, decoder.checkpoint.eos)
    for delay, tokens, calls, rows in (("together", 36, 4, 12 * 3 + 2 * 12 + 12), (None, 84, 85, 85)):
        runner = EngineRunner(decoder, {"delay": delay}, lengths)
        made = runner.run(some, 1, time.perf_counter)
        assert [len(output.tokens) for output in made.outputs] == [tokens, tokens]
        assert (made.calls, made.rows) == (2 * calls, 2 * rows)
        again = from_spec(**json.loads(json.dumps(runner.spec()[1])))
        assert again.run(some, 1, time.perf_counter).outputs == made.outputs


@pytest.mark.parametrize("name", ["transformers", "ctranslate2"])
def test_peers_make_as_many_tokens_as_they_are_told(decoder, tmp_path, name):
    pytest.importorskip("ctranslate2") if name == "ctranslate2" else None
    peer = make_peer(name, decoder.checkpoint, tmp_path / name, 8, exactly=True)
    assert not isinstance(peer, Absent)
    made = peer.run(sources(decoder, 2), 2, time.perf_counter)
    assert [len(output.tokens) for output in made.outputs] == [8, 8]
    assert made.calls == 8
