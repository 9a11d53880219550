"""One whole text, decoded by the engine, is that of transformers' own greedy search."""

from __future__ import annotations

import copy

import pytest
import torch

from pipedec_cli.model.steps.engine import Engine
from pipedec_cli.model.steps.weights import lay_out
from pipedec_cli.pipeline.decode import Method
from pipedec_cli.pipeline.grid import Limits
from pipedec_cli.pipeline.schedule import Whole
from tests.model.engines import run_engine
from tests.model.families import BOS, EOS, KINDS, SOURCES, Kind, small_model


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", KINDS)
def test_one_whole_text_is_that_of_transformers_greedy(kind: Kind) -> None:
    """Both where the text ends by itself and where it is cut by the bound on tokens."""
    model = small_model(kind)
    bound = 9
    method = Method(Whole(), BOS, EOS, Limits(time_max=None, sub_max=None, max_tokens=bound))

    outcomes = run_engine(Engine(model, 2), SOURCES, method)

    assert {outcome.truncated for outcome in outcomes} <= {None, "max_tokens"}
    for source, outcome in zip(SOURCES, outcomes, strict=True):
        ids = torch.tensor([source])
        expected = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=1, max_new_tokens=bound
        )[0].tolist()
        assert [BOS, *outcome.rows[0][1]] == expected
        assert outcome.truncated == (
            "max_tokens" if len(expected) == bound + 1 and expected[-1] != EOS else None
        )


def test_greedy_texts_both_end_and_are_cut() -> None:
    """What the test above compares has both kinds."""
    method = Method(Whole(), BOS, EOS, Limits(time_max=None, sub_max=None, max_tokens=9))
    outcomes = [out for kind in KINDS for out in run_engine(Engine(small_model(kind), 2), SOURCES, method)]

    assert {outcome.truncated for outcome in outcomes} == {None, "max_tokens"}


def test_a_text_longer_than_the_first_room_is_that_of_transformers_greedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cache grows on the way, with two sequences in flight."""
    monkeypatch.setattr("pipedec_cli.model.steps.operators.FIRST_ROOM", 4)
    model = copy.deepcopy(small_model("t5"))
    with torch.no_grad():
        model.lm_head.weight[EOS] = 0  # and with it the embedding: the text never ends
    bound = 20
    method = Method(Whole(), BOS, EOS, Limits(time_max=None, sub_max=None, max_tokens=bound))

    outcomes = run_engine(Engine(model, 2, weights=lay_out(model, prepack=False)), SOURCES[:2], method)

    for source, outcome in zip(SOURCES, outcomes, strict=False):
        ids = torch.tensor([source])
        expected = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=1, max_new_tokens=bound
        )
        assert [BOS, *outcome.rows[0][1]] == expected[0].tolist()
