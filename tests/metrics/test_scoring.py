"""Which protocol scores a task, by which settings."""

import pytest

from pipedec_cli.metrics import TASK_OF
from pipedec_cli.metrics.keyphrases import Chan2019, Meng2017
from pipedec_cli.metrics.multispan import MultiSpanQA
from pipedec_cli.metrics.rouge import Rouge
from pipedec_cli.metrics.scoring import MEASURES, make_protocol
from tests.words import refusing


def test_each_protocol_has_a_task():
    assert [measure.name for measure in MEASURES] == [*TASK_OF]


@pytest.mark.parametrize(
    ("task", "name", "settings", "measure"),
    [
        ("summarization", None, {}, Rouge()),
        ("keyphrases", None, {}, Chan2019()),
        ("multispan", None, {}, MultiSpanQA()),
        ("summarization", None, {"stemmer": False}, Rouge(stemmer=False)),
        (
            "keyphrases",
            "meng2017",
            {"hard": True, "stemmer": None},
            Meng2017(hard=True),
        ),
    ],
)
def test_a_task_has_its_usual_protocol_and_a_protocol_its_settings(
    task, name, settings, measure
):
    assert make_protocol(task, name, **settings) == measure
    # What curves and advice are about stands in the tables.
    assert measure.primary in measure.headline


@pytest.mark.parametrize(("name", "settings"), [("rouge", {}), (None, {"hard": True})])
def test_a_protocol_or_setting_that_does_not_fit_is_refused_with_those_there_are(
    name, settings
):
    with refusing():
        make_protocol("keyphrases", name, **settings)
