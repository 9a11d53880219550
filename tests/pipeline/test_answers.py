"""Known answers of rows on the engine: their scores equal a full pass, in one call or many, whatever stands beside them."""

import math
import random
from dataclasses import replace

import pytest
import torch

from pipedec_cli.model.engine.engine import Engine
from pipedec_cli.pipeline import answers as answers_module
from pipedec_cli.pipeline.answers import Answer, branched, trials_of
from pipedec_cli.pipeline.attention import visible
from pipedec_cli.pipeline.grid import Limits, Method, Opening
from pipedec_cli.pipeline.schedule import Together
from tests import fakes
from tests.model.engines import (
    BLIND_KEYS,
    EOS,
    KEYS,
    PROMPTED,
    VOCABULARY,
    bos_of,
    compiled,
    engines_of,
    in_every_dtype,
    make_engine,
    small_model,
    sources_of,
)
from tests.oracle import Placed, next_logits_of

NOTHING = Answer((EOS,), "")


def known_answers(row, count=5):
    """Answers of one to six tokens, one of them the beginning of another, and "no value"."""
    chance = random.Random(row)
    texts = [
        chance.choices(range(3, VOCABULARY), k=1 + number % 6)
        for number in range(count)
    ]
    texts.append([*texts[-1], 5])
    return (
        *(Answer((*text, EOS), f"{row}.{number}") for number, text in enumerate(texts)),
        NOTHING,
    )


def method_with(keys, bos, *, blind=False, **more):
    """Every second row chooses among answers; a blind row that does not has "no value" beside what it writes."""
    openings = []
    for row, key in enumerate(keys):
        if row % 2 == 0:
            openings.append(Opening(key, answers=known_answers(row), written=False))
        else:
            openings.append(Opening(key, answers=(NOTHING,) if blind else ()))
    return Method(
        Together(),
        bos,
        EOS,
        Limits(9),
        openings=tuple(openings),
        confident=True,
        blind=blind,
        **more,
    )


def grids_of(engine, how, sources):
    ends = fakes.finished(engine, sources, how, engine.sequences)
    return [ends[number].grid for number in range(len(sources))]


def scores_by_full_passes(model, source, keys, row, bos, answers):
    """Of each answer of a row, behind the known tokens of all rows: the sum of its tokens' log-probabilities."""
    begun = [
        Placed(number, time, token)
        for number, key in enumerate(keys, start=1)
        for time, token in enumerate((bos, *key), start=-len(key))
    ]
    next_logits = next_logits_of(model, source)
    scores = []
    for answer in answers:
        fed = [
            Placed(row, time, token)
            for time, token in enumerate(answer.tokens[:-1], start=1)
        ]
        grid = [*begun, *fed]
        last = next(
            place
            for place, placed in enumerate(grid)
            if placed.subsequence == row and placed.time == 0
        )
        wanted = [last, *range(len(begun), len(grid))]
        logits = torch.tensor(next_logits(grid, wanted)).log_softmax(dim=-1)
        scores.append(
            sum(
                float(line[token])
                for line, token in zip(logits, answer.tokens, strict=True)
            )
        )
    return scores


def scores_by_transformers(model, prompt, key, answers):
    """The same of a blind row: the prompt, what the row begins with, and the answer, as one text."""
    scores = []
    for answer in answers:
        ids = [*prompt, *key, *answer.tokens]
        with torch.no_grad():
            logits = (
                model(input_ids=torch.tensor([ids]))
                .logits[0]
                .float()
                .log_softmax(dim=-1)
            )
        first = len(prompt) + len(key)
        scores.append(
            sum(float(logits[at - 1, ids[at]]) for at in range(first, len(ids)))
        )
    return scores


@engines_of("t5", "bart", *PROMPTED)
def test_scores_in_trained_rows_equal_a_full_pass_behind_what_all_rows_begin_with(
    kind, stepping
):
    source, bos = sources_of(kind)[0], bos_of(kind)
    how = method_with(KEYS, bos)
    [grid] = grids_of(make_engine(kind, stepping, 1), how, [source])
    for number, (opening, row) in enumerate(
        zip(how.openings, grid.subsequences, strict=True), start=1
    ):
        if opening.answers:
            wanted = scores_by_full_passes(
                small_model(kind), source, KEYS, number, bos, opening.answers
            )
            assert row.scores == pytest.approx(wanted, abs=2e-4)
            assert tuple(row.tokens) == row.script


@engines_of("t5", *PROMPTED)
def test_what_is_written_beside_a_chosen_answer_is_as_if_the_model_had_written_it(
    kind, stepping
):
    source, bos = sources_of(kind)[0], bos_of(kind)
    how = method_with(KEYS, bos)
    [grid] = grids_of(make_engine(kind, stepping, 1), how, [source])
    scripts = {
        number: row.script
        for number, row in enumerate(grid.subsequences)
        if how.openings[number].answers
    }
    assert scripts
    whole = [
        Placed(number, time, token)
        for number, (key, row) in enumerate(
            zip(KEYS, grid.subsequences, strict=True), start=1
        )
        for time, token in enumerate((bos, *key, *row.tokens), start=-len(key))
    ]
    logits = next_logits_of(small_model(kind), source)
    for number, row in enumerate(grid.subsequences):
        if number in scripts:
            continue
        for time, token in enumerate(row.tokens):
            before = [placed for placed in whole if placed.time <= time]
            last = next(
                at
                for at, placed in enumerate(before)
                if placed[:2] == (number + 1, time)
            )
            assert (
                logits(before, [last])[0].index(max(logits(before, [last])[0])) == token
            )


@engines_of(*PROMPTED)
def test_scores_in_blind_rows_equal_those_of_the_row_as_one_text(kind, stepping):
    how = method_with(BLIND_KEYS, EOS, blind=True)
    sources = sources_of(kind)
    for source, grid in zip(
        sources, grids_of(make_engine(kind, stepping, 2), how, sources), strict=True
    ):
        for opening, row in zip(how.openings, grid.subsequences, strict=True):
            wanted = scores_by_transformers(
                small_model(kind), source, opening.known, opening.answers
            )
            assert row.scores == pytest.approx(wanted, abs=2e-4)


def test_a_blind_row_has_its_answer_after_one_call():
    how = method_with(BLIND_KEYS[:1], EOS, blind=True)
    [grid] = grids_of(
        make_engine("llama, tied", "plain", 1), how, [sources_of("llama, tied")[0]]
    )
    [row], [opening] = grid.subsequences, how.openings
    best = max(
        opening.answers[:-1],
        key=lambda answer: row.scores[opening.answers.index(answer)],
    )
    assert grid.steps == 1
    assert opening.text(row) in (best.text, "")
    total = sum(math.exp(score) for score in row.scores)
    assert row.confidence == pytest.approx(math.exp(max(row.scores[:-1])) / total)
    assert row.forced == pytest.approx(1 - total)


@in_every_dtype
@pytest.mark.parametrize("most", [1, 20, 4096])
def test_batches_do_not_change_a_bit_of_a_score_and_the_number_of_calls_hardly(
    dtype, most, monkeypatch
):
    """In more calls a sum has other terms of no weight between its own."""
    weights = compiled(small_model("llama, no panel"), dtype)
    how = method_with(BLIND_KEYS, EOS, blind=True)
    sources = [
        random.Random(seed).choices(range(3, 40), k=20 + seed) for seed in range(8)
    ]
    at_once = grids_of(Engine(weights, 1), how, sources[:1])[0]
    monkeypatch.setattr(answers_module, "MOST_TRIED", most)
    alone = [grids_of(Engine(weights, 1), how, [source])[0] for source in sources]
    together = grids_of(Engine(weights, 8), how, sources)
    for row, grid in zip(alone, together, strict=True):
        assert [one.scores for one in grid.subsequences] == [
            one.scores for one in row.subsequences
        ]
        assert [one.tokens for one in grid.subsequences] == [
            one.tokens for one in row.subsequences
        ]
    for one, whole in zip(alone[0].subsequences, at_once.subsequences, strict=True):
        assert one.scores == pytest.approx(whole.scores, abs=1e-4)
    assert (alone[0].steps > at_once.steps) == (most < 4096)


def test_more_answers_than_branches_are_tried_in_several_calls():
    answers = tuple(
        Answer((3 + number % 40, EOS), str(number)) for number in range(2500)
    )
    opening = Opening((7, 3), answers=answers, written=False)
    how = Method(Together(), EOS, EOS, Limits(9), openings=(opening,), blind=True)
    [grid] = grids_of(
        make_engine("llama, tied", "plain", 1), how, [sources_of("llama, tied")[0]]
    )
    [row] = grid.subsequences
    assert (grid.steps, grid.time) == (3, 1)
    assert row.scores[:40] == pytest.approx(row.scores[2000:2040], abs=1e-4)


def test_answers_that_are_tried_leave_nothing_behind_in_the_cache():
    how = method_with(BLIND_KEYS, EOS, blind=True)
    plain = replace(
        how,
        openings=tuple(replace(opening, answers=()) for opening in how.openings[1::2]),
    )
    written = replace(how, openings=how.openings[1::2])
    engine = make_engine("qwen3, tied", "plain", 1)
    source = sources_of("qwen3, tied")[0]
    expected = [row.tokens for row in grids_of(engine, plain, [source])[0].subsequences]
    found = [row.tokens for row in grids_of(engine, written, [source])[0].subsequences]
    for row, full in zip(found, expected, strict=True):
        assert (
            row == full[: len(row)] or row[:-1] == full[: len(row) - 1]
        )  # "no value" may end it before


def test_a_row_that_must_have_a_value_has_the_best_one_however_probable_no_value_is():
    key, source = BLIND_KEYS[0], sources_of("llama, tied")[0]
    answers = known_answers(0)
    for must in (False, True):
        opening = Opening(key, answers=answers, written=False, least=2.0, must=must)
        how = Method(Together(), EOS, EOS, Limits(9), openings=(opening,), blind=True)
        [grid] = grids_of(make_engine("llama, tied", "plain", 1), how, [source])
        [row] = grid.subsequences
        assert opening.lacks(row)
        assert bool(opening.text(row)) == must


def shared(texts, row=1):
    return [
        (row, Answer((*text, EOS), str(number))) for number, text in enumerate(texts)
    ]


def test_what_several_answers_begin_with_is_tried_once():
    trials, tried = trials_of(shared([(7, 8), (7, 9), (7,), (6,)]))
    assert [(trial.token, trial.depth) for trial in trials] == [
        (-1, 0),
        (7, 1),
        (8, 2),
        (9, 2),
        (6, 1),
    ]
    assert trials[1].wanted == (8, 9, EOS)
    assert [each.steps for each in tried] == [
        ((0, 0), (1, 0), (2, 0)),
        ((0, 0), (1, 1), (3, 0)),
        ((0, 0), (1, 2)),
        ((0, 1), (4, 0)),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_a_token_of_answers_sees_those_before_it_in_an_answer_and_no_other(seed):
    draw = random.Random(seed)
    answers = []
    for row in (1, 2):
        texts = [draw.choices((5, 6, 7), k=draw.randint(1, 5)) for _ in range(12)]
        answers += shared(texts, row)
    trials, _ = trials_of(answers)
    rows = torch.tensor([branched(trial.row, trial.branch) for trial in trials])
    times = torch.tensor([trial.depth + trial.lift for trial in trials])
    sees = visible((rows, times), (rows, times))
    path = []
    for number, trial in enumerate(trials):
        del path[trial.depth :]
        path.append(number)
        assert sees[number].nonzero().flatten().tolist() == path


def test_a_row_without_any_value_to_take_has_none():
    opening = Opening((7, 3), answers=(NOTHING,), written=False, must=True)
    how = Method(Together(), EOS, EOS, Limits(9), openings=(opening,), blind=True)
    [grid] = grids_of(
        make_engine("llama, tied", "plain", 1), how, [sources_of("llama, tied")[0]]
    )
    [row] = grid.subsequences
    assert (opening.text(row), opening.absence(row), row.ended) == ("", 1.0, True)
