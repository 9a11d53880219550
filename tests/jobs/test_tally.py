"""What a run says at its end: of drafts that cost more than they save, and of texts that were stopped."""

import pytest

from pipedec_cli.data.records import Generated, Record
from pipedec_cli.jobs.tally import Tally
from tests.words import same_words


@pytest.mark.parametrize("steps", [12, 13, 18])
def test_drafts_that_cost_more_calls_than_they_save_are_told_of(steps):
    tally = Tally(examples=3, tokens=10, steps=steps, draft_steps=5)
    same_words(tally.saved_none([1.0, 3.0]))
    assert tally.saved_none(None) is None


def test_texts_that_were_stopped_on_repeat_are_counted_and_named(caplog):
    caplog.set_level("INFO", "pipedec")
    tally = Tally(seconds=1.0)
    for stopped_on_repeat in (True, False, True):
        made = Generated(
            text="a",
            segments=("a",),
            steps=2,
            tokens=1,
            stopped_on_repeat=stopped_on_repeat,
        )
        tally.add(made, None, None)
    assert tally.stopped_on_repeat == 2
    tally.report({"max_source_tokens": 9, "sub_max": 9})
    same_words("\n".join(caplog.messages))


def test_what_cut_a_source_and_what_the_text_does_not_say_is_told(caplog):
    tally = Tally(seconds=1.0)
    record = Record("7", "a", None, None, (), "")
    cut = {"source_cut": True, "missing": {"total": 0.9}}
    tally.add(Generated(text="", segments=(), record=record, **cut), None, None)
    settings = {"max_source_tokens": 9, "prompt": "{source}"}
    tally.report(settings | {"rows": {"shots": 4}})
    assert "the prompt with its examples" in caplog.text
    assert "fewer --shots" in caplog.text
    assert "1 of 1 object must have a value" in caplog.text
    caplog.clear()
    tally.report(settings)
    assert "shots" not in caplog.text
    tally.report({"max_source_tokens": 9})
    assert "longer than 9 tokens" in caplog.text
