"""The oracle itself: held to the paper's example and to transformers where the two must agree."""

from __future__ import annotations

import pytest
import torch

from pipedec_cli.pipeline.grid import Limits
from pipedec_cli.pipeline.schedule import Fixed, Whole
from tests.fakes import BOS, EOS, hashed_next_logits
from tests.model.engines import KINDS, SOURCES, Kind, small_model
from tests.oracle import OracleSchedule, Placed, next_logits_of, oracle_decode, oracle_logits
from tests.pipeline.driving import ask_oracle, scripted_next_logits

A, B, C, D, E = range(2, 7)


def test_figure_2() -> None:
    result = oracle_decode(
        scripted_next_logits([[A, B, C], [D, E]]), OracleSchedule("fixed", delay=1), bos=BOS, eos=EOS
    )
    assert result.rows == [(0, [A, B, C, EOS]), (1, [D, E, EOS]), (2, [EOS]), (3, [EOS])]
    made = [[placed.token for placed in call.made] for call in result.calls]
    assert made == [[A], [B, D], [C, E, EOS], [EOS, EOS, EOS]]
    assert (result.steps, result.truncated, result.gap) == (4, None, 1.0)


def test_the_gap_is_that_of_the_closest_call() -> None:
    answers = iter([[0.0, 1.0, 5.0], [0.0, 4.0, 3.75]])
    result = oracle_decode(lambda grid, wanted: [next(answers)], OracleSchedule("whole"), bos=BOS, eos=EOS)
    assert result.rows == [(0, [A, EOS])]
    assert result.gap == 0.25


@pytest.mark.parametrize("kind", KINDS)
def test_one_subsequence_gets_the_logits_of_transformers(kind: Kind) -> None:
    ids = torch.tensor([[0, 7, 7, 3, 20, 4, 9, 12, 30, 2, 0, 5, 6, 17, 39]])
    with torch.no_grad():
        expected = small_model(kind)(input_ids=torch.tensor([SOURCES[0]]), decoder_input_ids=ids).logits[0]
    grid = [Placed(1, time, token) for time, token in enumerate(ids[0].tolist())]
    logits = oracle_logits(small_model(kind), SOURCES[0], grid)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_one_subsequence_gets_the_tokens_of_greedy_generate(kind: Kind) -> None:
    model = small_model(kind)
    expected = model.generate(torch.tensor([SOURCES[0]]), do_sample=False, num_beams=1, max_new_tokens=12)
    result = ask_oracle(
        next_logits_of(model, SOURCES[0]), Whole(), Limits(time_max=None, sub_max=None, max_tokens=12)
    )
    assert [BOS, *result.subsequences[0].tokens] == expected[0].tolist()


def test_the_scripts_of_the_fakes_end_their_texts_and_go_on() -> None:
    """The hashed fake is worth something as a model only if its texts have several subsequences."""
    limits = Limits(time_max=20, sub_max=6)
    results = [ask_oracle(hashed_next_logits([number]), Fixed(2), limits) for number in range(20)]
    assert max(sum(tokens != [EOS] for _, tokens in result.rows) for result in results) >= 3
