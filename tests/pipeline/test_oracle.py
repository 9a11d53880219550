"""The oracle itself: held to the paper's example and to transformers where the two must agree."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.fakes import BOS, EOS, hashed_next_logits
from tests.oracle import OracleSchedule, Placed, oracle_decode, oracle_t5_logits, t5_next_logits
from tests.pipeline.driving import scripted_next_logits

A, B, C, D, E = range(2, 7)
SOURCE = [5, 9, 2, 11, 3, 1]


def test_figure_2() -> None:
    result = oracle_decode(
        scripted_next_logits([[A, B, C], [D, E]]), OracleSchedule("fixed", delay=1), bos=BOS, eos=EOS
    )

    assert result.rows == [(0, [A, B, C, EOS]), (1, [D, E, EOS]), (2, [EOS]), (3, [EOS])]
    assert [[placed.token for placed in call.made if placed.token != EOS] for call in result.calls] == [
        [A],
        [B, D],
        [C, E],
        [],
    ]
    assert (result.steps, result.truncated, result.gap) == (4, None, 1.0)


def test_the_gap_is_that_of_the_closest_call() -> None:
    answers = iter([[0.0, 1.0, 5.0], [0.0, 4.0, 3.75]])

    result = oracle_decode(lambda grid, wanted: [next(answers)], OracleSchedule("whole"), bos=BOS, eos=EOS)

    assert result.rows == [(0, [A, EOS])]
    assert result.gap == 0.25


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def t5(request: pytest.FixtureRequest) -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(3)
    config = T5Config(
        vocab_size=32,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
        tie_word_embeddings=request.param,
        initializer_factor=3.0,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
    return T5ForConditionalGeneration(config).eval()


def test_one_subsequence_gets_the_logits_of_transformers(t5: Any) -> None:
    tokens = [0, 7, 7, 3, 20, 4, 9, 12, 30, 2]
    with torch.no_grad():
        expected = t5(input_ids=torch.tensor([SOURCE]), decoder_input_ids=torch.tensor([tokens])).logits[0]

    logits = oracle_t5_logits(t5, SOURCE, tokens, [1] * len(tokens), list(range(len(tokens))))

    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)


def test_one_subsequence_gets_the_tokens_of_greedy_generate(t5: Any) -> None:
    expected = t5.generate(torch.tensor([SOURCE]), do_sample=False, num_beams=1, max_new_tokens=12)[
        0
    ].tolist()

    result = oracle_decode(
        t5_next_logits(t5, SOURCE),
        OracleSchedule("whole"),
        bos=0,
        eos=1,
        time_max=None,
        sub_max=None,
        max_tokens=12,
    )

    assert [0, *result.subsequences[0].tokens] == expected


def test_the_order_of_the_tokens_does_not_matter(t5: Any) -> None:
    grid = [Placed(1, 0, 0), Placed(1, 1, 8), Placed(2, 1, 0), Placed(1, 2, 4), Placed(2, 2, 9)]
    order = [3, 0, 4, 2, 1]

    forward = oracle_t5_logits(t5, SOURCE, *columns(grid))
    shuffled = oracle_t5_logits(t5, SOURCE, *columns([grid[k] for k in order]))

    torch.testing.assert_close(shuffled, forward[order], rtol=1e-5, atol=1e-5)


def test_a_token_changes_what_sees_it_and_nothing_else(t5: Any) -> None:
    grid = [
        Placed(i, t, 0 if t == start else 3 + t)
        for i, start in ((1, 0), (2, 1), (3, 2))
        for t in range(start, 5)
    ]
    changed = Placed(2, 3, 30)
    place = next(k for k, placed in enumerate(grid) if placed[:2] == changed[:2])

    before = oracle_t5_logits(t5, SOURCE, *columns(grid))
    after = oracle_t5_logits(t5, SOURCE, *columns([*grid[:place], changed, *grid[place + 1 :]]))

    differs = {grid[k][:2] for k in range(len(grid)) if not torch.allclose(before[k], after[k], atol=1e-5)}
    assert differs == {(2, 3), (2, 4), (3, 3), (3, 4)}


def columns(grid: list[Placed]) -> tuple[list[int], list[int], list[int]]:
    """Tokens, subsequences and times, as `oracle_t5_logits` takes them."""
    return [p.token for p in grid], [p.subsequence for p in grid], [p.time for p in grid]


def test_the_scripts_of_the_fakes_end_their_texts_and_go_on() -> None:
    """The hashed fake is worth something as a model only if its texts have several subsequences."""
    counts = [
        sum(
            tokens != [EOS]
            for _, tokens in oracle_decode(
                hashed_next_logits([n]),
                OracleSchedule("fixed", delay=2),
                bos=BOS,
                eos=EOS,
                time_max=20,
                sub_max=6,
            ).rows
        )
        for n in range(20)
    ]

    assert max(counts) >= 3
