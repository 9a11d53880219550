"""The keys that become rows: read off targets, or chosen among them."""

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field
from pipedec_cli.data.records import record_of
from pipedec_cli.objects.schema import learn_schema, read_short
from tests.words import refusing

FACTS = [
    {"name": "The Mill", "food": "Thai", "stars": 3},
    {"name": "Aromi", "tags": ["cosy"], "stars": 2.5, "food": None},
    {"name": "Zizzi", "open": True, "food": " "},
    {},
]


ANY = Field("a", "any")


def records(*targets):
    return [
        record_of({"target": one}, f"x:{line}", line)
        for line, one in enumerate(targets, start=1)
    ]


def test_keys_kinds_and_shares_are_those_of_the_targets_in_their_order():
    fields, others = learn_schema(records(*FACTS))
    assert [(field.name, field.kind, field.share) for field in fields] == [
        *(("name", "string", 0.75), ("food", "string", 0.25), ("stars", "number", 0.5)),
        *(("tags", "list", 0.25), ("open", "boolean", 0.25)),
    ]
    assert not others
    (marks, plain), _ = learn_schema(
        records({"a": [1, 2.5], "b": ["x"]}, {"a": [True, None]})
    )
    assert (marks.kind, marks.scalars, plain.scalars) == (
        "list",
        ("integer", "number", "boolean"),
        (),
    )
    assert (
        marks.parsed("2 | 2.5 | false") == [2, 2.5, False]
        and marks.parsed("2 | x") is None
    )
    fields, others = learn_schema(records(*FACTS), keep=0.5)
    assert [field.name for field in fields] == ["name", "stars"]
    assert others == {"food": 1, "tags": 1, "open": 1}
    fields, others = learn_schema(
        records(*FACTS, {"odd": {"a": 1}}),
        {"stars": Field("stars", "any"), "name": Field("name")},
    )
    described = [(field.name, field.kind, field.share) for field in fields]
    assert described == [("stars", "number", 0.4), ("name", "string", 0.6)]
    assert others == {"food": 1, "tags": 1, "open": 1, "odd.a": 1}, (
        "what is not asked for need be no value"
    )


@pytest.mark.parametrize(
    ("targets", "known"),
    [
        ([["a"]], None),
        ([{"a": 1}, {"a": "x"}], None),
        ([{"a": [[1]]}], None),
        ([{"a": [{"b": [{"c": 1}]}]}], None),
        ([{"a": {"b": 1}}], {"a": ANY}),
        ([{"a": {"b": 1}}, {"a": 1}], None),
        ([{"a": {"b": 1}}, {"a": [{"b": 1}]}], None),
        ([{"a": {"b": 1}, "a.b": 1}], None),
        ([{"a": 1}], {"b": Field("b", "any")}),
        ([{"a": 1}], {"b": Field("b")}),
        ([{}, {"a": ""}], None),
        ([{f"k{n}": 1 for n in range(5001)}], None),
        ([{" ": 1}], None),
        ([{"a": 1}, {"a ": 1}], None),
    ],
)
def test_what_gives_no_schema_is_refused_with_its_place(targets, known):
    with refusing():
        learn_schema(records(*targets), known)


def test_nested_objects_and_lists_give_paths_and_a_share_for_each_record():
    menu = [{"dish": "d"}, {"dish": "e", "price": 3}]
    first = {"name": "A", "at": {"city": "X", "geo": {"lat": 1}}, "menu": menu}
    fields, _ = learn_schema(
        records(first, {"at": {}, "menu": [{}]}, {"menu": [{"dish": "f"}]}, {})
    )
    assert [(one.name, one.path, one.kind, one.share) for one in fields] == [
        ("name", (), "string", 0.25),
        ("at.city", ("at", "city"), "string", 0.25),
        ("at.geo.lat", ("at", "geo", "lat"), "number", 0.25),
        ("menu[].dish", ("menu", 0, "dish"), "string", 0.5),
        ("menu[].price", ("menu", 0, "price"), "number", 0.25),
    ]
    asked = {"at.city": Field("at.city", "any", path=("wrong", "path"))}
    chosen, others = learn_schema(records(first), asked)
    assert chosen[0].path == ("at", "city") and others["menu[].dish"] == 1
    (dotted,), _ = learn_schema(
        records({"a.b": 1}), {"a.b": Field("a.b", "any", path=("a", "b"))}
    )
    assert dotted.keys == ("a.b",), "a key that has a point in it is meant"


def test_the_short_form_names_keys_kinds_and_choices():
    text = "name, age int, tags list,, kind: pub | restaurant, at.city text, menu[].price float"
    assert [
        (one.name, one.kind, one.enum, one.path) for one in read_short(text).values()
    ] == [
        ("name", "any", (), ()),
        ("age", "integer", (), ()),
        ("tags", "list", (), ()),
        ("kind", "any", ("pub", "restaurant"), ()),
        ("at.city", "string", (), ("at", "city")),
        ("menu[].price", "number", (), ("menu", 0, "price")),
    ]
    with refusing():
        read_short("a, a.b")


def test_a_name_of_several_words_stands_in_quotes():
    text = """ "customer rating", name,"unit, price: net" number, "menu[].unit price" float: 1|2.5, b: "x, y" | z """
    assert [
        (one.name, one.kind, one.enum, one.path) for one in read_short(text).values()
    ] == [
        ("customer rating", "any", (), ()),
        ("name", "any", (), ()),
        ("unit, price: net", "number", (), ()),
        ("menu[].unit price", "number", ("1", "2.5"), ("menu", 0, "unit price")),
        ("b", "any", ("x, y", "z"), ()),
    ]


def test_a_date_of_the_short_form_is_a_string_with_its_format():
    fields = read_short('day date, "sent at" datetime, from time, date')
    assert [(one.name, one.kind, one.keywords) for one in fields.values()] == [
        ("day", "string", (("format", "date"),)),
        ("sent at", "string", (("format", "date-time"),)),
        ("from", "string", (("format", "time"),)),
        ("date", "any", ()),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "customer rating",
        "name, age itn",
        '"unit price" numbre',
        "unit price: a|b",
        'name, "unit price',
        'menu[]."unit price"',
        'size: 12" | 14"',
        "kind:",
        ': a|b, "" int',
        "a..b",
        "a, a int",
        "menu[]",
        " ,",
    ],
)
def test_what_is_no_key_of_the_short_form_is_refused_with_what_to_write(text):
    with refusing() as refusal:
        read_short(text)
    assert refusal.value.todo


@pytest.mark.parametrize("entry", ["age:int", "day: date", '"a b": number'])
def test_a_kind_behind_a_colon_is_refused_as_the_only_choice(entry):
    with pytest.raises(UserError) as refusal:
        read_short(f"name, {entry}")
    assert repr(entry) in refusal.value.what and refusal.value.todo
    (field,) = read_short("kind: date|number").values()
    assert field.enum == ("date", "number")


@pytest.mark.parametrize("name", ["person.json", " models.PY"])
def test_a_file_given_as_the_short_form_is_refused(name):
    with refusing():
        read_short(name)
