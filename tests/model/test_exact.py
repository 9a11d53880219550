"""Exact mode on a T5: the tokens are those of its own greedy text and of transformers', whatever drafts them."""

import pytest
import torch

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Generated
from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.model.decoder import Decoder
from pipedec_cli.model.exact import ExactDecoder
from pipedec_cli.pipeline.decode import Finished, Stepped, decode
from pipedec_cli.pipeline.grid import Limits, Method
from pipedec_cli.pipeline.schedule import Whole
from pipedec_cli.pipeline.verify import Verify
from tests.checkpoints import SOURCES, tiny_checkpoint
from tests.model.engines import BOS, EOS, KINDS, STEPPINGS, make_engine, small_model
from tests.model.engines import SOURCES as IDS

LIMITS = Limits(None, None, 24)


def texts_of(engine, method, sequences=1):
    events = decode(engine, enumerate(IDS), method, sequences)
    ends = {event.example: event for event in events if isinstance(event, Finished)}
    return [ends[number] for number in range(len(IDS))]


@pytest.mark.parametrize("stepping", STEPPINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_are_the_plain_ones_with_right_wrong_and_no_drafts(kind, stepping):
    """In any batch; where the compiled kernels compute, a row's answer does not depend on the rows beside it."""
    plain = texts_of(make_engine(kind, stepping, 1), Method(Whole(), BOS, EOS, LIMITS))
    right = {number: end.grid.subsequences[0].tokens for number, end in enumerate(plain)}
    half = {
        number: [*tokens[: len(tokens) // 2], 3, *tokens[len(tokens) // 2 :]]
        for number, tokens in right.items()
    }
    for drafts in ({}, right, half, {number: [5, 5, 5, EOS] for number in right}):
        for jacobi in (False, True):
            for sequences in (1, 3):
                method = Verify(BOS, EOS, LIMITS, jacobi, drafts=dict(drafts))
                ends = texts_of(make_engine(kind, stepping, sequences), method, sequences)
                assert [end.texts for end in ends] == [end.texts for end in plain]
                assert [end.grid.truncated for end in ends] == [end.grid.truncated for end in plain]
                if drafts is right:
                    assert sum(end.grid.steps for end in ends) < sum(end.grid.steps for end in plain) / 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_are_those_of_transformers_greedy_search(kind):
    for source, end in zip(
        IDS, texts_of(make_engine(kind, "plain", 1), Verify(BOS, EOS, LIMITS)), strict=True
    ):
        expected = small_model(kind).generate(
            torch.tensor([source]), do_sample=False, num_beams=1, max_new_tokens=LIMITS.max_tokens
        )
        assert expected[0].tolist() == [BOS, *end.grid.subsequences[0].tokens]


@pytest.fixture(scope="module")
def decoders(tmp_path_factory):
    """An ordinary T5 and a pipelined decoder, which have learnt the same texts."""
    folder = tmp_path_factory.mktemp("tiny")
    kinds = ("sequential", "pipelined")
    return {
        kind: Decoder(load_checkpoint(str(tiny_checkpoint(folder / kind, decoder=kind, level="sentence"))))
        for kind in kinds
    }


@pytest.mark.parametrize("draft", ["pipelined", "source", "jacobi"])
@pytest.mark.parametrize("batch_size", [1, 8])
def test_a_decoder_in_exact_mode_gives_the_plain_texts_and_counts_the_drafts_calls(
    decoders, draft, batch_size
):
    plain = list(decoders["sequential"].texts(SOURCES * 2))
    exact = ExactDecoder(decoders["sequential"], decoders.get(draft, draft))
    exact.costs = (1.0,) * 9
    made = list(exact.texts(SOURCES * 2, batch_size=batch_size))
    alike = ("index", "text", "segments", "tokens", "truncated", "grid", "source_ids", "source_cut")
    assert [[getattr(one, name) for name in alike] for one in made] == [
        [getattr(one, name) for name in alike] for one in plain
    ]
    drafted = [one.draft_steps for one in made]
    if draft == "pipelined":
        texts = decoders["pipelined"].texts(SOURCES * 2)
        assert drafted == [one.steps for one in texts]
        # The draft is right: its calls, and one for every nine tokens.
        assert [one.steps for one in made] == [one.draft_steps + -(-(one.tokens + 1) // 9) for one in made]
    else:
        assert drafted == [None] * len(made)
        assert all(one.steps <= other.steps for one, other in zip(made, plain, strict=True))


@pytest.mark.parametrize("batch_size", [1, 3])
def test_how_far_every_check_came_and_the_guesses_in_vain_are_told(decoders, batch_size):
    exact = ExactDecoder(decoders["sequential"], "jacobi")
    steps, vain = {}, 0
    for item in exact.run(SOURCES, batch_size=batch_size):
        if isinstance(item, Stepped):
            steps.setdefault(item.example, []).append(item.step)
        if isinstance(item, Generated):
            own = steps[item.index]
            assert list(item.calls) == [step.time for step in own]
            assert (item.steps, item.tokens + 1) == (len(item.calls), item.calls[-1])
            assert [place for *place, _ in item.taken_back] == [
                [step.number, 1, slot.time] for step in own for slot in step.taken_back
            ]
            vain += len(item.taken_back)
    assert vain > 0


@pytest.mark.parametrize("draft", ["pipelined", "source", "jacobi"])
@pytest.mark.parametrize("batch_size", [1, 8])
def test_with_every_draft_and_in_batches_the_tokens_are_those_of_transformers(decoders, draft, batch_size):
    plain = decoders["sequential"]
    exact = ExactDecoder(plain, decoders.get(draft, draft))
    for one in exact.texts(SOURCES * 2, batch_size=batch_size):
        source = torch.tensor([one.source_ids])
        expected = plain.checkpoint.model.generate(source, do_sample=False, num_beams=1, max_new_tokens=512)
        ((_, tokens),) = one.grid
        assert expected[0].tolist() == [plain.checkpoint.bos, *tokens]


def test_what_guesses_cost_is_measured_once_for_a_batch_size_and_leaves_the_engine_as_it_was(decoders):
    exact = ExactDecoder(decoders["sequential"], "source")
    costs = exact.measured(3)
    assert len(costs) == 16
    assert costs[0] == 1.0 == min(costs)
    assert list(costs) == sorted(costs)
    plain = decoders["sequential"].texts(SOURCES)
    assert [one.text for one in exact.texts(SOURCES, batch_size=3)] == [one.text for one in plain]


def test_drafts_are_made_by_the_method_of_the_run(decoders):
    exact, drafter = ExactDecoder(decoders["sequential"], decoders["pipelined"]), decoders["pipelined"]
    for delay in (1, 3):
        method = exact.method(delay=delay)
        assert method == drafter.method(delay=delay)
        drafted = [one.draft_steps for one in exact.texts(SOURCES, method)]
        assert drafted == [one.steps for one in drafter.texts(SOURCES, method)]


def test_exact_mode_wants_an_ordinary_t5_and_no_other_one_as_its_drafter(decoders):
    with pytest.raises(
        UserError, match="is a pipelined decoder, and exact mode gives the text of an ordinary model"
    ):
        ExactDecoder(decoders["pipelined"], "source")
    with pytest.raises(UserError, match="is an ordinary model, which drafts no faster"):
        ExactDecoder(decoders["sequential"], decoders["sequential"])
    with pytest.raises(UserError, match="the draft is 'guess'"):
        ExactDecoder(decoders["sequential"], "guess")


def test_a_text_is_cut_where_the_plain_one_is(decoders):
    plain = decoders["sequential"].texts(SOURCES, decoders["sequential"].method(max_tokens=5))
    exact = ExactDecoder(decoders["sequential"], decoders["pipelined"])
    made = exact.texts(SOURCES, exact.method(delay=1, max_tokens=5))
    assert [(one.text, one.truncated) for one in made] == [(one.text, one.truncated) for one in plain]
