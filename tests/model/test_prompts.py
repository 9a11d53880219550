"""Where tokens stand behind a prompt: the first row's opener right behind it, known tokens before their row's start."""

from pipedec_cli.model.engine.prompts import Prompts
from pipedec_cli.pipeline.attention import PROMPT_TIME
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot


def positions(prompts, rows):
    prompts.settle(rows)
    return [prompts.place(*row)[1] for row in rows]


def rows_at(sequence, *places):
    return [Row(sequence, Slot(subsequence, time, 0)) for subsequence, time in places]


def test_the_first_rows_opener_stands_right_behind_the_prompt_and_others_by_time_and_subsequence():
    prompts = Prompts(2)
    prompts.begin(1, 7)
    assert positions(prompts, rows_at(1, (1, 0), (1, 1), (2, 1), (3, 5))) == [7, 8, 9, 14]


def test_the_longest_key_moves_the_grid_back_and_later_calls_move_nothing():
    prompts = Prompts(2)
    prompts.begin(0, 4)
    prompts.begin(1, 9)
    first = rows_at(0, (1, -1), (1, 0), (2, -3), (2, 0)) + rows_at(1, (1, 0))
    assert positions(prompts, first) == [6, 7, 5, 8, 9]
    assert positions(prompts, rows_at(0, (3, -5), (1, 1))) == [4, 8]


def test_a_sequence_that_starts_anew_has_an_empty_prompt_and_no_known_tokens():
    prompts = Prompts(1)
    prompts.begin(0, 4)
    positions(prompts, rows_at(0, (1, -2)))
    prompts.begin(0, 0)
    assert positions(prompts, rows_at(0, (1, 0), (2, 2))) == [0, 3]


def test_a_prompt_is_the_row_before_all_others_in_the_order_of_its_tokens():
    rows = [row for row, _ in Prompts(1).prompt_rows(0, [5, 3])]
    assert [(row.slot.subsequence, row.slot.time, row.slot.token) for row in rows] == [
        (0, PROMPT_TIME, 5),
        (0, PROMPT_TIME + 1, 3),
    ]
    assert not any(row.slot.answers for row in rows)
