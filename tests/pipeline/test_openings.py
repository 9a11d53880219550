"""Openings first: against the oracle, and what an opening is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.model.openings import Openings, openings_of
from pipedec_cli.pipeline.decode import decode
from pipedec_cli.pipeline.grid import Limits, Method
from pipedec_cli.pipeline.schedule import OpeningsFirst
from tests.fakes import (
    BOS,
    EOS,
    VOCABULARY,
    HashedModel,
    ScriptedModel,
    hashed_next_logits,
)
from tests.oracle import oracle_openings_first
from tests.pipeline.test_together import assert_oracles, outcome

SEPARATOR = 2


class Codec:
    """Writes each text as one token: the number of its letters, above the separator."""

    def ids(self, texts):
        return [[SEPARATOR if text == "|" else SEPARATOR + len(text)] for text in texts]


def method(limits):
    return Method(OpeningsFirst(), BOS, EOS, limits, openings=(Openings(Codec(), EOS).row0,))


@pytest.mark.parametrize("sequences", [1, 8])
@given(
    sources=st.lists(st.lists(st.integers(2, VOCABULARY - 1), max_size=3), min_size=1, max_size=9),
    limits=st.builds(Limits, st.integers(1, 12), st.integers(1, 6)),
)
def test_a_grid_with_openings_first_equals_the_oracle(sequences, sources, limits):
    events = list(decode(HashedModel(), enumerate(sources), method(limits), sequences))
    for number, source in enumerate(sources):
        bounds = {"time_max": limits.time_max, "sub_max": limits.sub_max}
        assert_oracles(
            events,
            number,
            oracle_openings_first(hashed_next_logits(source), SEPARATOR, bos=BOS, eos=EOS, **bounds),
        )


def test_sentences_start_together_when_the_openings_are_written_and_each_has_its_own():
    texts = [[5, 6, SEPARATOR, 7], [8, 9], [3]]
    events = list(decode(ScriptedModel([texts]), [(0, [0])], method(Limits(20, 9))))
    first, *rows = outcome(events)[0].subsequences
    assert (first.start, first.tokens, first.end) == (0, [*texts[0], EOS], 5)
    assert [(row.start, row.known, row.tokens) for row in rows] == [
        (5, (5, 6), [8, 9, EOS]),
        (5, (7,), [3, EOS]),
    ]


@pytest.mark.parametrize(
    ("sentences", "openings"),
    [
        (
            ["The Mill is a pub.", "It serves Thai food.", "The Mill is cheap."],
            ["The Mill", "Thai food", "cheap"],
        ),
        (["It is here.", "…", "Pub, pub."], ["It", "…", "Pub"]),
    ],
)
def test_an_opening_is_two_words_of_the_source_that_stand_in_no_opening_before(sentences, openings):
    assert [*openings_of("name[the mill], eatType[pub], food[Thai], cheap food", sentences)] == openings
