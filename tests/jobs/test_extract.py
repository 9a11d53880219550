"""Objects from Python: pydantic classes, JSON Schemas and short forms, a result a text."""

import re
import subprocess
import sys
from itertools import count, islice
from pathlib import Path

import pytest

import pipedec_cli as pipedec
from pipedec_cli.data.fields import by_path
from tests.checkpoints import tiny_checkpoint
from tests.model.chats import foreign
from tests.running import lines_of, run, write_lines

ROOT = Path(__file__).parents[2]
SCHEMA = {
    "properties": {
        "name": {"type": "string"},
        "stars": {"type": ["integer", "null"]},
        "at": {"properties": {"area": {"enum": ["river", "city"]}}},
    },
    "required": ["name"],
}
TEXTS = ["The Mill has 3 stars.", "Aromi is by the river.", "It is <b>cheap</b>."]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A chat model that knows nothing."""
    return foreign(tmp_path_factory.mktemp("extract") / "model")


@pytest.fixture(scope="module")
def decoder(model):
    return pipedec.load(model, device="cpu")


def test_the_results_are_those_of_generate(model, tmp_path):
    (tmp_path / "schema.json").write_text(
        '{"properties": {"name": {"type": "string"}, "stars": {"type": "integer"}}}'
    )
    shown = {"source": "Aromi has 2 stars.", "target": {"name": "Aromi", "stars": 2}}
    write_lines(tmp_path / "shots.jsonl", shown)
    write_lines(tmp_path / "docs.jsonl", *({"source": text} for text in TEXTS))
    schema, shots = tmp_path / "schema.json", f"{tmp_path / 'shots.jsonl'}:1"
    out = tmp_path / "out.jsonl"
    files = (tmp_path / "docs.jsonl", "--model", model, "--out", out, "--device", "cpu")
    how = ("--schema", schema, "--shots", shots, "--confidence", "--spans")
    run("generate", *files, *how)
    given = {"model": model, "shots": shots, "device": "cpu"}
    results = list(pipedec.extract(TEXTS, schema, **given))
    for result, line, text in zip(results, lines_of(out), TEXTS, strict=True):
        assert (result.text, result.value) == (text, line["fields"])
        assert result.confidence == line["confidence"]
        places = {
            key: spans and [*map(list, spans)] for key, spans in line["spans"].items()
        }
        assert result.spans == places
        assert [*result.violations] == line.get("violations", [])


def test_a_table_a_file_and_a_short_form_ask_for_the_same_keys(decoder, tmp_path):
    for schema in (SCHEMA, "name, stars int, at.area: river|city"):
        values = [made.value for made in pipedec.extract(TEXTS, schema, model=decoder)]
        assert [
            value["name"] in text for value, text in zip(values, TEXTS, strict=True)
        ]
        assert all(
            value["at"]["area"] in ("river", "city")
            for value in values
            if value.get("at")
        )


def test_texts_are_read_as_results_are_taken(decoder):
    taken = []

    def endless():
        for number in count():
            taken.append(number)
            yield f"text {number}"

    results = pipedec.extract(endless(), "name", model=decoder, batch_size=2)
    texts = [result.text for result in islice(results, 40)]
    assert texts == [f"text {number}" for number in range(40)]
    assert len(taken) <= 96
    results = pipedec.extract(endless(), "name", model=decoder)
    taken.clear()
    next(results)
    assert len(taken) <= 2


def test_a_batch_gives_what_one_text_at_a_time_gives(decoder):
    alone = list(pipedec.extract(TEXTS, SCHEMA, model=decoder))
    assert list(pipedec.extract(TEXTS, SCHEMA, model=decoder, batch_size=3)) == alone


@pytest.mark.extra("pydantic")
def test_a_class_gives_its_objects_and_none_where_one_is_violated(decoder):
    from pydantic import BaseModel, field_validator

    class Place(BaseModel):
        name: str
        stars: int | None = None

        @field_validator("name")
        @classmethod
        def short(cls, name: str) -> str:
            if "Aromi" in TEXTS[1] and name in TEXTS[1]:
                raise ValueError("of the second text")
            return name

    results = list(pipedec.extract(TEXTS, Place, model=decoder))
    for result, text in zip(results, TEXTS, strict=True):
        is_second = result.fields["name"] in TEXTS[1]
        assert bool(result.violations) is is_second
        if is_second:
            assert result.value is None
        else:
            assert isinstance(result.value, Place) and result.value.name in text
    assert results[1].value is None, "the second text has no other words"


@pytest.mark.extra("pydantic")
def test_a_class_that_cannot_be_used_is_refused_in_one_line(decoder):
    from collections.abc import Callable

    from pydantic import BaseModel

    class Called(BaseModel):
        name: Callable[[], None]

    class Empty(BaseModel):
        pass

    for given in (Called, Empty, BaseModel, int):
        with pytest.raises(pipedec.UserError) as raised:
            pipedec.extract(TEXTS, given, model=decoder)
        assert "\n" not in str(raised.value)
        assert raised.value.where is None or given.__name__ in raised.value.where


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"schema": {"type": "array"}}, "the schema"),
        ({"schema": {"properties": {"a": {3}}}}, "the schema"),
        ({"schema": ["name"]}, None),
        ({"schema": None}, None),
        ({"schema": "no-such.json"}, "no-such.json"),
        ({"schema": "age years"}, None),
        ({"schema": ""}, None),
        ({"texts": "one text"}, None),
        ({"shots": "no-such.jsonl:2"}, "no-such.jsonl"),
        ({"shots": "no number"}, None),
        ({"model": "no-such-model"}, None),
        ({"dtype": "float8"}, None),
        ({"device": "tpu"}, None),
    ],
)
def test_what_cannot_be_used_is_refused_before_a_result_is_asked_for(
    model, given, place
):
    usual = {"texts": TEXTS, "schema": "name", "model": model}
    with pytest.raises(pipedec.UserError) as raised:
        pipedec.extract(**(usual | given))
    assert raised.value.where == place and "\n" not in str(raised.value)


def test_a_loaded_model_writes_texts_as_before(model):
    decoder = pipedec.load(model, device="cpu")
    before = decoder.checkpoint.ends
    list(pipedec.extract(TEXTS[:1], "name", model=decoder))
    assert decoder.checkpoint.ends == before


def test_a_loaded_model_has_its_own_dtype_and_answers_without_training(
    decoder, tmp_path
):
    with pytest.raises(pipedec.UserError, match="dtype"):
        pipedec.extract(TEXTS, "name", model=decoder, dtype="int8")
    trained = pipedec.load(tiny_checkpoint(tmp_path / "trained", family="llama"))
    exact = pipedec.ExactDecoder(decoder, "source")
    for other in (trained, exact):
        with pytest.raises(pipedec.UserError, match="ordinary"):
            pipedec.extract(TEXTS, "name", model=other)


def test_a_notebook_shows_keys_values_confidence_and_places_as_text():
    made = pipedec.Extraction(
        text="<b>a</b> 3",
        value={},
        fields={"a<": "<b>", "at": {"n": 3}, "tags": ["x", "y"], "menu": [{"d": "z"}]},
        confidence={"a<": 0.25, "at": {"n": 1.0}, "tags": [0.5, 0.125]},
        spans={"a<": [[0, 3]], "at": {"n": None}, "tags": [[[1, 2], [4, 5]], None]},
        probabilities={},
        violations=("at: <i>",),
        missing={"at.n": 0.9},
    )
    shown = made._repr_html_()
    assert "<li>at.n: the text does not say it</li>" in shown
    assert shown.count("<tr>") == 5
    for cell in (
        "a&lt;",
        "&lt;b&gt;",
        "0.25",
        "[[0, 3]]",
        "at.n",
        "3",
        "",
        "menu[1].d",
    ):
        assert f">{cell}</td>" in shown
    assert ">[[[1, 2], [4, 5]], null]</td>" in shown
    assert "<li>at: &lt;i&gt;</li>" in shown and "<b>" not in shown


@pytest.mark.extra("pydantic")
def test_the_lines_of_the_docs_work_as_they_stand(model, capsys):
    text = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    extracting, deciding = blocks[:2]
    known = re.sub(r'^model = ".*"$', f"model = {str(model)!r}", extracting, flags=re.M)
    assert str(model) in known
    exec(known + deciding, {"__name__": "docs"})
    told = capsys.readouterr().out
    assert "guests=4 day=datetime.date(2026, 3, 12)" in told
    names = ["urgent", "topic", "anger", "order"]
    assert [line.split()[0] for line in told.splitlines()[1:]] == names


def test_an_object_so_far_only_grows_and_ends_as_the_whole(decoder):
    whole = list(pipedec.extract(TEXTS, SCHEMA, model=decoder))
    for size in (1, 3):
        results = pipedec.extract(
            TEXTS, SCHEMA, model=decoder, partial=True, batch_size=size
        )
        before = {}
        ended = []
        for result in results:
            values = by_path(result.fields)
            assert before.items() <= values.items(), "what was given never changes"
            assert result.text == TEXTS[len(ended)]
            assert result.value == result.fields
            before = values
            if result.is_whole:
                ended.append(result)
                before = {}
        assert ended == whole


@pytest.mark.extra("pydantic")
def test_a_class_has_no_value_before_its_object_is_whole(decoder):
    from pydantic import BaseModel

    class Place(BaseModel):
        stars: int
        name: str

    results = list(pipedec.extract(TEXTS[:1], Place, model=decoder, partial=True))
    *parts, whole = results
    assert parts and parts[0].fields == {"stars": 3} and parts[0].spans["stars"]
    assert all(part.value is None and not part.is_whole for part in parts)
    assert whole.is_whole and isinstance(whole.value, Place)


def test_choices_and_booleans_have_the_probabilities_of_their_labels(decoder):
    schema = "kind: pub|bar, open bool, name"
    [made] = pipedec.extract(TEXTS[:1], schema, model=decoder)
    assert {*made.probabilities} == {"kind", "open"}
    assert {*made.probabilities["kind"]} == {"pub", "bar", ""}
    for shares in made.probabilities.values():
        assert sum(shares.values()) == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.extra("mypy")
def test_a_type_checker_knows_the_class_of_a_value(tmp_path):
    (tmp_path / "typed.py").write_text(
        "from typing import Any, assert_type\n"
        "import pipedec_cli as pipedec\n"
        "class Model:\n"
        "    @classmethod\n"
        "    def model_json_schema(cls, *, schema_generator: Any = 0) -> dict[str, Any]:\n"
        "        return {}\n"
        "for made in pipedec.extract(['a'], Model, model='m'):\n"
        "    assert_type(made.value, Model | None)\n"
        "for other in pipedec.extract(['a'], 'name', model='m'):\n"
        "    assert_type(other.value, dict[str, Any])\n"
        "pipedec.extract(['a'], int, model='m')\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml"]
    ended = subprocess.run(
        [*command, "--cache-dir", tmp_path / "cache", tmp_path / "typed.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    faults = [line for line in ended.stdout.splitlines() if "error" in line]
    assert len(faults) == 2 and "typed.py:11" in faults[0] and "int" in faults[0]
