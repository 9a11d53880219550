"""Exact mode: whatever the draft, the text is the plain model's; and the guesses are those that the method names."""

from collections import defaultdict

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipedec_cli.pipeline.decode import Finished, Stepped, decode
from pipedec_cli.pipeline.exact import Verify
from pipedec_cli.pipeline.grid import SEQUENTIAL_LIMITS, Limits, Method
from pipedec_cli.pipeline.schedule import Whole
from tests.fakes import BOS, EOS, HashedModel, ScriptedModel, finished

A, B, C, D, E = range(2, 7)
MOST = 8  # guesses in a call that costs the same whatever it checks


def checked(script, source=(0,), limits=SEQUENTIAL_LIMITS, **how):
    """The rows of each call for a scripted text, and how it ended."""
    model = ScriptedModel({source[0]: script})
    method = Verify(BOS, EOS, limits, **how)
    (end,) = finished(model, [source], method).values()
    calls = []
    for call in model.calls:
        calls.append([row.slot.token for row in call])
    return calls, end


def behind(tokens, text, after=None):
    """Slowly: the place in `tokens` behind the last 3, 2 or 1 of a text, the last one or the first beyond `after`."""
    for n in (3, 2, 1):
        places = []
        if len(text) < n:
            continue
        for place in range(n, len(tokens)):
            is_behind = tokens[place - n : place] == text[-n:]
            if is_behind and (after is None or place > after):
                places.append(place)
        if places:
            return places[-1 if after is None else 0]
    return None


def calls_of(text, draft, source, max_tokens):
    """How many calls the text takes, and the rows in each: the method's rule for guesses, read slowly.

    `text` is the model's own, with its <eos> if it has one.
    """
    agreed = []
    rows = []
    place = used = 0
    while agreed[-1:] != [EOS] and len(agreed) < max_tokens:
        told = [] if place is None else draft[place:]
        guess = told or copied(source, agreed)
        most = max_tokens - len(agreed) - 1
        guess = guess[: min(MOST, most)]
        rows.append(1 + len(guess))
        new = answered(text[len(agreed) :], guess)
        agreed += new
        if place is not None:
            same = alike(told, new)
            used = place = place + same
            if same == len(new):
                continue
        place = behind(draft, agreed, used)
    return rows


def copied(source, agreed):
    """What goes on behind the end of the text in the source, else in the text itself."""
    for tokens in (source, agreed):
        place = behind(tokens, agreed)
        if place is not None:
            return tokens[place:]
    return []


def answered(text, guess):
    """What a call adds: the text up to its first token that was not guessed, or its end."""
    new = []
    for token in [*guess, None]:
        new.append(text[len(new)])
        if new[-1] != token or new[-1] == EOS:
            break
    return new


def alike(one, other):
    """How many tokens two texts begin with in common."""
    count = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        count += 1
    return count


token = st.integers(2, 5)
tokens = st.lists(token, max_size=14)
source = st.lists(token, min_size=1, max_size=9)
sources = st.lists(source, min_size=1, max_size=4)
KNOWN = [*range(2, 7)]


@given(tokens, tokens, source, st.integers(1, 16))
# No longer than it may be, whatever the draft knows.
@example(KNOWN, KNOWN, [0], 3)
def test_the_guesses_are_those_that_the_rule_names(text, draft, source, max_tokens):
    limits = Limits(None, None, max_tokens)
    known = [*draft, EOS] if draft else []
    drafts = {0: known} if draft else {}
    calls, end = checked([text], source, limits, drafts=drafts)
    wanted = [text[:max_tokens]]
    assert end.texts == (wanted if text else [])
    is_cut = len(text) >= max_tokens
    assert end.grid.truncated == ("max_tokens" if is_cut else None)
    expected = calls_of([*text, EOS], known, source, max_tokens)
    assert [*map(len, calls)] == expected
    agreed = len(end.grid.subsequences[0].tokens)
    assert end.grid.steps == len(expected)
    assert end.grid.wrong == sum(expected) - agreed


@settings(max_examples=80)
@given(
    sources,
    st.lists(tokens, max_size=4),
    st.booleans(),
    st.integers(1, 5),
    st.integers(1, 20),
)
def test_whatever_the_draft_the_text_is_the_plain_models_in_any_batch(
    texts, drafts, jacobi, size, max_tokens
):
    limits = Limits(None, None, max_tokens)
    usual = Method(Whole(), BOS, EOS, limits)
    plain = finished(HashedModel(), texts, usual)
    drafts = {number: [*draft, EOS] for number, draft in enumerate(drafts)}
    model = HashedModel()
    method = Verify(BOS, EOS, limits, jacobi=jacobi, drafts=drafts)
    ends = {}
    made = defaultdict(list)
    for event in decode(model, list(enumerate(texts)), method, size):
        if isinstance(event, Finished):
            ends[event.example] = event
        elif isinstance(event, Stepped):
            made[event.example] += event.step.made
    for number, end in plain.items():
        assert ends[number].texts == end.texts
        assert ends[number].grid.truncated == end.grid.truncated
        assert ends[number].grid.steps <= end.grid.steps
        row = end.grid.subsequences[0].tokens
        wanted = [*enumerate(row, start=1)]
        written = [(slot.time, slot.token) for slot in made[number]]
        assert written == wanted
    assert model.sources == {}


def test_the_right_draft_takes_a_call_for_every_nine_tokens():
    text = [*range(2, 12)] * 3
    _, end = checked([text], drafts={0: [*text, EOS]})
    assert (end.texts, end.grid.steps) == ([text], 4)


def test_jacobis_next_guesses_are_the_models_own_answers():
    """Nothing repeats, so that no n-gram tells anything: what was answered behind a wrong guess is guessed next."""
    calls, _ = checked([[A, B, C, D, E]], jacobi=True, costs=(1.0,) * 4)
    assert calls[:2] == [[BOS] * 4, [A, B, C, D]]


@pytest.mark.parametrize(
    ("costs", "rows"),
    [
        ((1.0,) * 9, 9),
        ((1.0, 1.1, 1.2, 9.0), 3),
        ((1.0, 5.0), 1),
        ((1.0,), 1),
        ((1.0, 1.0, 1.0, 1.4, 1.45), 3),
    ],
)
def test_no_more_is_guessed_than_is_worth_its_cost(costs, rows):
    calls, _ = checked([[A] * 20], costs=costs, drafts={0: [A] * 20})
    assert len(calls[0]) == rows


def test_guesses_that_never_come_true_are_hardly_made_any_more_and_do_not_count_against_the_draft():
    """Each token's only bigram in the source goes on otherwise than the text, whose second half the draft knows."""
    text = list(range(10, 70))
    source = []
    for known in text[:30]:
        source += [known, 99]
    costs = tuple(1 + 0.3 * number for number in range(9))
    drafts = {0: [8, *text[30:], EOS]}
    calls, _ = checked([text], source, costs=costs, drafts=drafts)
    rows = [*map(len, calls)]
    assert sum(rows[5:30]) < 25 + 6
    assert max(rows[30:]) > 4
