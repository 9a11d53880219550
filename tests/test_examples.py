"""The example scripts of docs/examples run, each on a tiny model that is made on the spot."""

import json
import runpy
from pathlib import Path

import pytest

from tests.model.chats import foreign

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"


def example(name, *arguments):
    """Run the main function of an example script, as its command line does."""
    main = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]
    main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A chat model that knows nothing."""
    return foreign(tmp_path_factory.mktemp("examples") / "model")


@pytest.mark.extra("pydantic")
def test_a_class_is_filled_from_each_text(model, capsys):
    texts = ("A table for 4 on 12 March 2026, please.", "2 of us, on 3 May 2026.")
    example("extract_with_a_class", "--model", model, *texts)
    found = capsys.readouterr().out.splitlines()
    assert [line.split()[3] for line in found[::2]] == ["2026-03-12", "2026-05-03"]


@pytest.mark.slow
def test_a_teacher_and_its_student_are_trained_and_scored(empty_folder, capsys):
    example("teach_a_summariser", "--records", 60, "--updates", 40)
    scores, _, used = capsys.readouterr().out.rpartition("}\n")
    assert "rougeL" in json.loads(scores + "}")
    assert used.splitlines()[-1].endswith("decoder calls")


@pytest.mark.extra("uvicorn")
def test_a_server_answers_typed_questions(model, capfd):
    text = "Where is order 4471?"
    example("serve_and_decide", "--model", model, "--text", text)
    urgent, topic, order = map(json.loads, capfd.readouterr().out.splitlines())
    assert 0 <= urgent["probability"] <= 1
    choices = {share["value"] for share in topic["probabilities"]}
    assert choices == {"delivery", "invoice", "other"}
    assert (order["text"] or "") in text
