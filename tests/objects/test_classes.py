"""A pydantic class of a user's file validates objects, beside its JSON Schema."""

import sys

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.objects.checking import checker
from pipedec_cli.objects.json_schema import load_schema, read_schema, tree_in

pytestmark = pytest.mark.extra("pydantic")

TICKET = """
from datetime import date
from decimal import Decimal
from typing import Annotated, Literal, Union
from pydantic import BaseModel, Field, field_validator, model_validator

class Line(BaseModel):
    item: str
    price: Decimal

    @field_validator("price")
    def price_is_no_gift(cls, price):
        print("it validates")
        if price == 0:
            raise ValueError("nothing\\nis free")
        return price

class Card(BaseModel):
    kind: Literal["card"]
    number: int

class Cash(BaseModel):
    kind: Literal["cash"]

class Ticket(BaseModel):
    total: int | None = None
    day: date | None = None
    lines: list[Line] = []
    paid: Annotated[Union[Card, Cash], Field(discriminator="kind")] | None = None
    sizes: dict[str, int] = {}
    size: int | list[int] = 1

    @model_validator(mode="after")
    def total_is_that_of_the_lines(self):
        if self.total is not None and self.total != sum(line.price for line in self.lines):
            raise ValueError("the total is another")
        return self
"""


def check_of(folder, text, name):
    """What checks objects of a class in a file with this text."""
    (folder / "models.py").write_text(text)
    given = load_schema(f"{folder / 'models.py'}:{name}")
    return checker(given.schema, given.where, pytest.fail, given.of_class)


@pytest.fixture
def ticket(tmp_path):
    return check_of(tmp_path, TICKET, "Ticket")


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (
            {"lines": [{"item": "a", "price": 1}, {"item": "b", "price": 0}]},
            ("lines", 2, "price"),
        ),
        ({"total": 3, "lines": [{"item": "a", "price": 2}]}, ()),
        ({"day": "2026-02-30"}, ("day",)),
        ({"lines": [{"price": 1}]}, ("lines", 1, "item")),
        ({"paid": {"kind": "card"}}, ("paid", "number")),
        ({"sizes": {"a": 1, "b": "x"}}, ("sizes", "b")),
    ],
)
def test_what_the_class_does_not_allow_is_named_once_with_its_path(ticket, value, path):
    ((found, words),) = ticket(value)
    assert found == path
    assert "\n" not in words


def test_the_words_are_those_of_the_class(ticket):
    assert (
        ticket({"lines": [{"item": "a", "price": 0}]})[0][1]
        == "Value error, nothing is free"
    )
    assert ticket({"paid": {"kind": "card"}})[0][1] == "Field required"


def test_what_the_class_allows_violates_nothing(ticket, capsys):
    assert ticket({}) == []
    lines = [{"item": "a", "price": 2}]
    assert (
        ticket(
            {"total": 2, "day": "2026-02-28", "lines": lines, "paid": {"kind": "cash"}}
        )
        == []
    )
    assert capsys.readouterr().out == "", "data alone go to stdout"


def test_an_alternative_of_a_union_is_no_key_of_the_path(ticket):
    assert {keys for keys, _ in ticket({"size": ["x"]})} == {("size",), ("size", 1)}


def test_what_the_json_schema_alone_forbids_is_named_too(tmp_path):
    text = "from pydantic import BaseModel\nclass A(BaseModel):\n    n: int = 0\n    m: int = 0\n"
    check = check_of(tmp_path, text, "A")
    assert [keys for keys, _ in check({"n": "3", "m": "x"})] == [("m",), ("n",)]


def test_at_most_ten_violations_are_named(ticket):
    assert len(ticket({"lines": [{"item": "a", "price": 0}] * 20})) == 10


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        ("1 / 0", "A raises ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "A raises SystemExit: 3"),
        (
            "import nowhere_at_all",
            "A raises ModuleNotFoundError: No module named 'nowhere_at_all'",
        ),
        ("cls.model_validate_json('[')", "Invalid JSON"),
    ],
)
def test_whatever_a_validator_raises_is_a_violation(tmp_path, raised, words):
    text = (
        "from pydantic import BaseModel, model_validator\nclass A(BaseModel):\n    n: int\n"
        f"    @model_validator(mode='before')\n    def it(cls, value):\n        {raised}\n"
    )
    ((keys, said),) = check_of(tmp_path, text, "A")({"n": 1})
    assert keys == ()
    assert said.startswith(words)


def test_a_validator_finds_the_files_beside_it_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "late_limits.py").write_text("MOST = 3\n")
    text = (
        "from pydantic import BaseModel, field_validator\nclass A(BaseModel):\n    n: int\n"
        "    @field_validator('n')\n    def it(cls, n):\n        from late_limits import MOST\n"
        "        assert n <= MOST\n        return n\n"
    )
    before = sys.path
    check = check_of(tmp_path, text, "A")
    assert (check({"n": 3}), [keys for keys, _ in check({"n": 4})]) == ([], [("n",)])
    assert sys.path is before
    assert not [name for name in sys.modules if name.startswith("pipedec_schema_")]


def test_a_class_whose_json_schema_cannot_be_made_is_refused_in_one_line(tmp_path):
    (tmp_path / "models.py").write_text(
        "from typing import Callable\nfrom pydantic import BaseModel\nclass A(BaseModel):\n    f: Callable\n"
    )
    with pytest.raises(UserError) as refusal:
        load_schema(f"{tmp_path / 'models.py'}:A")
    assert refusal.value.where == str(tmp_path / "models.py")
    assert "\n" not in str(refusal.value)


TYPES = """
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Literal
from uuid import UUID
from pydantic import UUID4, BaseModel, HttpUrl, PositiveInt, SecretStr, condecimal, constr

class Colour(Enum):
    RED = "red"
    BLUE = "blue"

class A(BaseModel):
    whole: PositiveInt
    real: float
    cost: Decimal
    price: condecimal(gt=0, max_digits=6) | None
    costs: list[Decimal]
    day: date
    at: datetime
    hour: time
    long: timedelta
    uuid: UUID
    four: UUID4
    url: HttpUrl
    secret: SecretStr
    file: Path
    word: str
    code: constr(pattern="^[A-Z]{2}$")
    flag: bool
    colour: Colour
    kind: Literal["a", "b"]
    mixed: int | str
"""


def test_types_of_pydantic_are_the_kinds_that_the_page_says(tmp_path):
    (tmp_path / "models.py").write_text(TYPES)
    given = load_schema(f"{tmp_path / 'models.py'}:A")
    fields = {
        field.name: field for field in tree_in(given.schema, "here", [].append).values()
    }
    assert {
        name: field.kind for name, field in fields.items() if field.kind != "string"
    } == {
        "whole": "integer",
        "real": "number",
        "cost": "number",
        "price": "number",
        "costs": "list",
        "flag": "boolean",
    }
    assert fields["costs"].scalars == ("number",)
    assert fields["mixed"].scalars == ("integer", "string")
    assert (fields["colour"].enum, fields["kind"].enum) == (("red", "blue"), ("a", "b"))
    bounds = [dict(fields[name].keywords) for name in ("whole", "price", "code")]
    assert bounds == [
        {"exclusiveMinimum": 0},
        {"exclusiveMinimum": 0},
        {"pattern": "^[A-Z]{2}$"},
    ]
    formats = {
        name: dict(field.keywords).get("format") for name, field in fields.items()
    }
    assert {name: found for name, found in formats.items() if found} == {
        "day": "date",
        "at": "date-time",
        "hour": "time",
        "long": "duration",
        "uuid": "uuid",
        "four": "uuid4",
        "url": "uri",
        "secret": "password",
        "file": "path",
    }


def test_a_pydantic_class_is_a_schema(tmp_path, capsys, caplog):
    (tmp_path / "kinds.py").write_text("KINDS = 1\n")
    path = tmp_path / "models.py"
    path.write_text(
        "from typing import Literal\nfrom pydantic import BaseModel, Field\nfrom kinds import KINDS\n"
        "print('it runs')\n"
        "class At(BaseModel):\n    city: str\n"
        "class Person(BaseModel):\n"
        "    name: str = Field(description='the full name', min_length=2)\n"
        "    age: int | None = None\n    at: At\n    old: list[At] = []\n    kind: Literal['a', 'b'] | None\n"
        "class Broken(BaseModel):\n    f: 'Nowhere'\n"
        "class Tree(BaseModel):\n    kids: list['Tree']\n"
        "plain = dict\n"
    )
    fields = read_schema(f"{path}:Person")
    assert [(one.name, one.kind, one.absent) for one in fields.values()] == [
        ("name", "string", ("never",)),
        ("age", "integer", ("omit",)),
        ("at.city", "string", ("never", "never")),
        ("old[].city", "string", ("omit", "omit", "never")),
        ("kind", "string", ("null",)),
    ]
    assert fields["name"].description == "the full name" and fields["kind"].enum == (
        "a",
        "b",
    )
    assert (fields["name"].keywords, caplog.messages) == ((("minLength", 2),), [])
    assert capsys.readouterr() == ("", "it runs\n"), "data alone go to stdout"
    refused = {
        "Nobody": "with one of its classes: At, Person, Broken, Tree",
        "plain": "models.py: it has no pydantic class 'plain'",
        "BaseModel": "models.py: it has no pydantic class 'BaseModel'",
        "": "models.py: which of its classes is meant is not said; give FILE.py:CLASS with one of",
        "Broken": "models.py: the file or its class 'Broken' cannot be used: Pydantic",
        "Tree": "models.py:Tree: the property 'kids[]' refers to itself",
    }
    for name, told in refused.items():
        with pytest.raises(UserError) as refusal:
            read_schema(f"{path}:{name}" if name else str(path))
        assert told in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "import nowhere_at_all",
            "cannot be used: ModuleNotFoundError: No module named 'nowhere_at_all'",
        ),
        ("raise SystemExit(3)", "cannot be used: SystemExit: 3"),
        ("def f(:", "cannot be used: SyntaxError"),
        (None, "no such file"),
    ],
)
def test_a_broken_class_is_refused_in_one_line(tmp_path, text, told):
    if text:
        (tmp_path / "models.py").write_text(text)
    with pytest.raises(UserError) as refusal:
        read_schema(f"{tmp_path / 'models.py'}:Person")
    assert told in str(refusal.value) and "\n" not in str(refusal.value)
