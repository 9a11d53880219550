"""Schemas as people have them: a JSON Schema as tools write it, a pydantic class, and the short form."""

import json
import time
from contextlib import suppress
from itertools import product

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field, RowAddress
from pipedec_cli.objects.json_schema import checker, keys_of, read_schema, tree_in
from pipedec_cli.objects.rows import Asked
from pipedec_cli.objects.schema import read_short
from pipedec_cli.objects.tree import ObjectOf, Part


def test_a_json_schema_is_read_as_tools_write_it(tmp_path):
    path = tmp_path / "schema.json"
    properties = {
        "name": {"type": "string", "description": "what it is called"},
        "stars": {"type": ["integer", "null"]},
        "price": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        "food": {"$ref": "#/$defs/Food"},
        "area": {"enum": ["riverside", "city centre", None]},
        "size": {"enum": [1, 2.5], "type": "number"},
        "kind": {"const": "pub"},
        "tags": {"type": "array", "items": {"enum": ["cosy", "loud"]}},
        "names": {"type": "array"},
        "open": {"type": "boolean"},
        "any": {"title": "Any"},
        "none": {"enum": ["None", ""]},
    }
    defs = {"Food": {"enum": ["Thai", "Italian"], "type": "string"}}
    schema = {
        "type": "object",
        "properties": properties,
        "$defs": defs,
        "required": ["name"],
    }
    path.write_text(json.dumps(schema))
    found = read_schema(str(path))
    assert (found["name"].description, found.pop("any").kind) == (
        "what it is called",
        "any",
    )
    assert found["name"].absent == ("never",) and found["stars"].absent == ("omit",)
    assert [(field.name, field.kind, field.enum) for field in found.values()] == [
        *(("name", "string", ()), ("stars", "integer", ()), ("price", "number", ())),
        *(
            ("food", "string", ("Thai", "Italian")),
            ("area", "string", ("riverside", "city centre")),
        ),
        *(
            ("size", "number", ("1", "2.5")),
            ("kind", "string", ("pub",)),
            ("tags", "list", ("cosy", "loud")),
        ),
        *(
            ("names", "list", ()),
            ("open", "boolean", ()),
            ("none", "string", ("None",)),
        ),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "the schema is no schema"),
        ("{", "not JSON"),
        ('{"properties": {}}', "the schema has no properties"),
        ('{"properties": {"a": {}, "a": {}}}', "'a' is there twice"),
        ('{"properties": {"a": 3}}', "the property 'a' is no schema"),
        (
            '{"properties": {"a": {"enum": "x"}}}',
            "the property 'a' has a `type` or an `enum` of the wrong kind",
        ),
        (
            '{"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": 1}}',
            "'#/$defs/A', which is no path in this",
        ),
        (
            '{"properties": {"a": {"$ref": "#"}}}',
            "the property 'a.a' refers to itself: #; write the levels out",
        ),
        (
            '{"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": {"$ref": "#/$defs/A"}}}}}',
            "'a' refers to itself",
        ),
        (
            '{"properties": {"a": {"items": {"$ref": "#/$defs/A"}, "type": "array"}}, "$defs": {"A": {"properties": '
            '{"b": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}}}}}',
            "the property 'a[].b' refers to itself",
        ),
        (
            '{"properties": {"a": {"type": "array", "prefixItems": [{}]}}}',
            "the keyword prefixItems",
        ),
        (
            '{"properties": {"a": {"type": "array", "items": {"type": "array", "items": {"type": "object"}}}}}',
            "'a' is",
        ),
        (
            '{"properties": {"a": {"type": "array", "items": {"properties": {"b": {"type": "array", "items": '
            '{"properties": {"c": {}}}}}}}}}',
            "the property 'a[].b' is a list of objects within another",
        ),
        (
            '{"properties": {"a": {"properties": {"b": 3}}}}',
            "the property 'a.b' is no schema",
        ),
        (
            '{"properties": {"a.b": {}, "a": {"properties": {"b": {}}}}}',
            "the keys 'a.b' and 'a.b' read alike",
        ),
        (
            '{"properties": {"a": {"type": "strng"}}}',
            "the property 'a' has the type 'strng'; take string, number",
        ),
        (
            '{"required": ["b"], "additionalProperties": false}',
            "the schema requires 'b', which it does not allow",
        ),
        (
            '{"properties": {"a": {}}, "required": [["a"]]}',
            "the schema requires ['a'], which is no name",
        ),
        ('{"properties": {"a": {"type": "null"}}}', "the property 'a' allows no value"),
        (
            '{"properties": {"a": {"type": ["null", "null"]}}}',
            "the property 'a' allows no value",
        ),
        (
            '{"properties": {"a": {"enum": ["", null]}}}',
            "the property 'a' allows no value",
        ),
        ('{"properties": {"a": {"enum": []}}}', "the property 'a' allows no value"),
        (
            '{"properties": {"a": {"enum": [[1], [2]]}}}',
            "the property 'a' is no string, number",
        ),
        *(
            (
                f'{{"properties": {{"a": {{"anyOf": [{{"enum": {one}}}, {{"enum": ["b"]}}]}}}}}}',
                told,
            )
            for one, told in (
                ("5", "an `enum` of the wrong kind"),
                ("null", "several alternatives"),
            )
        ),
        (
            '{"properties": {"a": {"enum": ["x", " y"]}}}',
            "the property 'a' has the choice ' y' with spaces",
        ),
        (
            '{"properties": {"a": {"$ref": "#b"}}}',
            "the property 'a' refers to '#b', which is no path",
        ),
        (
            '{"properties": {"a": {"type": "object"}}}',
            "the property 'a' is an object without properties",
        ),
        (
            '{"properties": {"a": {"type": ["string", "array"]}}}',
            "the property 'a' is no string",
        ),
        (
            '{"properties": {"a": {"type": ["number", "array"]}}}',
            "the property 'a' is no string",
        ),
        (
            '{"properties": {"a": {}, "b": {"type": "object"}}, "required": ["b"]}',
            "'b' is an object without properties",
        ),
        (
            '{"properties": {"a": {"type": "array", "items": {"type": "object"}}}}',
            "the property 'a[]' is an object without",
        ),
        (
            '{"properties": {"a": {"$ref": "other.json"}}}',
            "the property 'a' refers to 'other.json'",
        ),
        ('{"properties": {"a": {"enum": [{}]}}}', "the property 'a' is no string"),
        (
            '{"properties": {"a": {"type": "number", "enum": ["x"]}}}',
            "the property 'a' allows no value",
        ),
        (
            '{"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "array"}]}}}',
            "the property 'a' has several alt",
        ),
    ],
)
def test_a_malformed_schema_is_refused_in_one_line(tmp_path, text, told):
    path = tmp_path / "schema.json"
    path.write_text(text)
    with pytest.raises(UserError) as refusal:
        read_schema(str(path))
    message = str(refusal.value)
    assert message.startswith(str(path)) and told in message and "\n" not in message


def test_nested_objects_and_lists_of_objects_give_paths(tmp_path):
    path = tmp_path / "schema.json"
    dish = {
        "properties": {"dish": {"type": "string"}, "price": {"type": "number"}},
        "required": ["dish"],
    }
    properties = {
        "at": {"anyOf": [{"$ref": "#/$defs/At%20it"}, {"type": "null"}]},
        "menu": {"type": "array", "items": dish},
        "kind": {"oneOf": [{"const": "pub"}, {"enum": ["bar"]}, {"type": "null"}]},
        "food": {"allOf": [{"enum": ["Thai"]}], "description": "what they cook"},
    }
    at = {
        "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}},
        "required": ["zip"],
    }
    schema = {
        "properties": properties,
        "required": ["at", "kind", "menu"],
        "$defs": {"At it": at},
    }
    path.write_text(json.dumps(schema))
    assert [
        (one.name, one.path, one.absent) for one in read_schema(str(path)).values()
    ] == [
        ("at.city", ("at", "city"), ("null", "omit")),
        ("at.zip", ("at", "zip"), ("null", "never")),
        ("menu[].dish", ("menu", 0, "dish"), ("never", "omit", "never")),
        ("menu[].price", ("menu", 0, "price"), ("never", "omit", "omit")),
        ("kind", (), ("null",)),
        ("food", (), ("omit",)),
    ]
    assert read_schema(str(path))["kind"].enum == ("pub", "bar")
    assert read_schema(str(path))["food"].description == "what they cook"


_DEFS = {
    "Base": {
        "type": "object",
        "properties": {"id": {"type": "integer"}},
        "required": ["id"],
    },
    "Red": {"type": "string", "enum": ["red"]},
    "Blue": {"type": "string", "enum": ["blue", "navy"]},
    "None": {"type": "null", "title": "None"},
    "Age": {"type": "number"},
}
_DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}


@pytest.mark.parametrize(
    ("part", "told"),
    [
        # All that stands beside each other holds.
        ({"$ref": "#/$defs/Base", "properties": {"x": {}}}, "id integer never, x any omit"),
        ({"allOf": [{"$ref": "#/$defs/Base"}], "properties": {"x": {}}, "required": ["x"]}, "id integer never, x any never"),
        ({"$ref": "#/$defs/Base", "properties": {"id": {"enum": [1, 2]}}}, "id integer 1|2 never"),
        ({"$ref": "#/$defs/Age", "type": "integer"}, "a integer never"),
        ({"$ref": "#/$defs/Age", "type": "string"}, "allows no value"),
        ({"$ref": "#/$defs/Age", "type": "string"} | _DRAFT_7, "a number never"),
        ({"allOf": [{"enum": ["a", "b", 1]}, {"enum": ["b", True, "c"]}]}, "a string b never"),
        ({"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}, "a string never"),
        ({"type": "array", "items": {"type": "string"}, "allOf": [{"items": {"enum": ["a"]}}]}, "a list a never"),
        # A list has no enum of texts.
        ({"type": "array", "items": {"type": "string"}, "enum": ["a"]}, "allows no value"),
        ({"type": "array", "const": "a"}, "allows no value"),
        ({"type": "array", "enum": [["a"]]}, "is no string"),
        ({"type": "array", "items": {"type": "string"}, "const": None}, "allows no value"),
        # Null is written where type and enum allow it.
        ({"type": ["string", "null"], "enum": ["a"]}, "a string a never"),
        ({"type": "string", "enum": ["a", None]}, "a string a never"),
        ({"type": ["string", "null"], "enum": ["a", None]}, "a string a null"),
        ({"anyOf": [{"$ref": "#/$defs/Red"}, {"type": "null"}]}, "a string red null"),
        # Alternatives are looked at without titles, references and lists of types.
        ({"anyOf": [{"type": "string"}, {"$ref": "#/$defs/None"}]}, "a string null"),
        ({"oneOf": [{"type": "integer"}, {"type": ["null"]}]}, "a integer null"),
        ({"anyOf": [{"$ref": "#/$defs/Red"}, {"$ref": "#/$defs/Blue"}]}, "a string red|blue|navy never"),
        ({"anyOf": [{"enum": ["a", None]}, {"const": "b", "title": "B"}]}, "a string a|b null"),
        ({"anyOf": [{"$ref": "#/$defs/Age"}, {"$ref": "#/$defs/Base"}]}, "several alternatives"),
        # A string is read as the first kind that fits.
        ({"anyOf": [{"$ref": "#/$defs/Age"}, {"$ref": "#/$defs/Red"}]}, "several alternatives"),
        ({"anyOf": [{"$ref": "#/$defs/Age"}, {"type": "string"}, {"enum": [5]}]}, "a string never +number+string"),
        ({"oneOf": [{"type": ["integer", "null"]}, {"type": ["string", "null"]}]}, "a string never +integer+string"),
        ({"type": "array", "items": {"type": "number"}}, "a list never +number"),
        ({"type": "array", "items": {"enum": [1, "a", None]}}, "a list 1|a never +integer+string"),
        ({"enum": [False, -3]}, "a string false|-3 never +integer+boolean"),
        ({"enum": ["a", "1", 2]}, "reads like one of another type"),
        ({"oneOf": [{"type": ["boolean", "null"]}, {"type": "string"}, {"type": "integer"}]}, "a string null +integer+boolean+string"),
        ({"type": ["number", "string"]}, "a string never +number+string"),
        ({"oneOf": [{"type": "array", "items": {"enum": ["a"]}}] * 2}, "allows no value"),
        ({"properties": {"x": {}}, "enum": [1, 2]}, "a integer 1|2 never"),
        ({"enum": ["a", 1, None]}, "a string a|1 null +integer+string"),
        ({"type": "integer", "const": 1.0}, "a integer 1 never"),
        ({"type": "string", "enum": ["a", 1]}, "a string a never"),
    ],
)  # fmt: skip
def test_a_value_is_held_to_all_that_stands_beside_each_other(part, told):
    schema = {"$defs": _DEFS, "properties": {"a": part}, "required": ["a"]}
    schema |= {"$schema": part["$schema"]} if "$schema" in part else {}
    try:
        fields = keys_of(schema, "here").values()
    except UserError as error:
        assert told in str(error)
        return
    scalars = ("".join(f"+{kind}" for kind in one.scalars) for one in fields)
    found = (
        (one.name.removeprefix("a."), one.kind, "|".join(one.enum), one.absent[-1])
        for one in fields
    )
    assert (
        ", ".join(
            " ".join(filter(None, [*one, more]))
            for one, more in zip(found, scalars, strict=True)
        )
        == told
    )


def test_a_list_of_objects_is_described_in_the_question_for_its_names():
    properties = {"price": {"type": "number"}, "dish": {"type": "string"}, "of": {}}
    menu = {
        "type": "array",
        "items": {"properties": properties},
        "description": "what they cook",
    }
    asked = Asked(
        tree_in({"properties": {"menu": menu}}, "here").parts["menu"], ("menu",)
    ).question()
    assert asked.startswith("What is the dish of each of the menu (what they cook)?")
    properties["dish"]["description"] = "its name"
    assert (
        tree_in({"properties": {"menu": menu}}, "here").parts["menu"].field.description
        == "its name"
    )


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (
            {"properties": {f"k{n}": {} for n in range(5_001)}},
            "more than 5,000 keys; write a smaller schema",
        ),
        (
            {"properties": {str(n): {"$ref": "#/$defs/A"} for n in range(9)}},
            "more than 20,000 choices",
        ),
        (
            {"properties": {str(n): {"$ref": "#/$defs/B"} for n in range(9)}},
            "more than 2,900,000 characters",
        ),
        (
            {"properties": {"a": {"$ref": "#/$defs/C0"}}},
            "too many references or alternatives within each other",
        ),
        (
            {"properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/D0"}}}},
            "more than 5,000 keys",
        ),
        (
            {"properties": {"a": {"$ref": "#/$defs/E0"}}},
            "the property 'a' has more than 64 levels",
        ),
    ],
)
def test_reading_a_schema_stops_at_a_limit_also_where_references_fan_out(schema, told):
    defs = {
        "A": {"enum": [f"c{n}" for n in range(3_000)]},
        "B": {"description": "so " * 200_000},
    }
    for n in range(9_000):
        defs[f"C{n}"] = {"$ref": f"#/$defs/C{n + 1}"}
    for n in range(70):
        defs[f"D{n}"] = {
            "properties": dict.fromkeys(
                "ab", {"$ref": f"#/$defs/D{n + 1}"} if n < 24 else {}
            )
        }
        defs[f"E{n}"] = {"properties": {"a": {"$ref": f"#/$defs/E{n + 1}"}}}
    with pytest.raises(UserError, match=told):
        keys_of(schema | {"$defs": defs}, "here")


TEXTS = [f"t{n}" for n in range(9_000)]


@pytest.mark.parametrize(
    "part",
    [
        {"anyOf": [{"const": text} for text in TEXTS]},
        {"oneOf": [{"title": text, "type": "string"} for text in TEXTS]},
        {"allOf": [{"properties": {text: {}}} for text in TEXTS]},
    ],
    ids=str.split("alternatives titles properties"),
)
def test_a_long_schema_is_read_or_refused_in_a_time_that_grows_with_its_length_alone(
    part,
):
    began = time.process_time()
    with suppress(UserError):
        keys_of({"properties": {"k": part}}, "here")
    assert time.process_time() - began < 2


def test_what_stands_in_a_list_beside_const_and_in_one_alternative_alone_holds():
    def read(**part):
        (field,) = keys_of(
            {"properties": {"k": part}, "required": ["k"]}, "here"
        ).values()
        return field.kind, field.enum, field.absent

    overlapping = [{"enum": ["a", "b", None]}, {"enum": ["b", "c", None]}]
    assert read(oneOf=overlapping) == ("string", ("a", "c"), ("never",))
    assert read(anyOf=overlapping)[2] == ("null",)
    assert read(oneOf=[{}, {"type": "null"}]) == ("any", (), ("never",))
    assert read(oneOf=[{"type": ["string", "null"]}, {"type": "null"}]) == (
        "string",
        (),
        ("never",),
    )
    assert read(oneOf=[{"type": "string"}, {"type": "null"}]) == (
        "string",
        (),
        ("null",),
    )
    assert read(const="a", enum=["a", "b"]) == ("string", ("a",), ("never",))
    for part in (
        {"const": "c", "enum": ["a"]},
        {"oneOf": [{"enum": ["a"]}] * 2},
        {"const": True, "enum": [1]},
    ):
        with pytest.raises(UserError, match="allows no value"):
            read(**part)


def test_a_question_names_a_share_of_many_choices_and_none_that_is_a_text():
    few, many = [f"c{n}" for n in range(40)], [f"c{n}" for n in range(100)]
    enums = (few, many, ["long " * 100] * 3, ["text " * 300, "b"])
    told = [
        Asked(Part(Field("a", enum=tuple(enum))), ("a",)).question() for enum in enums
    ]
    assert told[0].endswith(f"One of: {', '.join(few)}.")
    assert told[1].endswith(f"One of: {', '.join(many[::3])}, …")
    assert told[2].endswith(f"One of: {'long ' * 100}, {'long ' * 100}, …")
    assert told[3].endswith("One of: b, …")


def test_keywords_that_values_are_not_held_to_are_named_once(tmp_path, caplog):
    path = tmp_path / "schema.json"
    address = {
        "properties": {"zip": {"type": "string", "pattern": "[0-9]+", "title": "Zip"}}
    }
    items = {"type": ["string", "integer"], "format": "email", "minLength": 3}
    mail = {"type": "array", "items": items, "x-note": 1, "minItem": 1}
    path.write_text(
        json.dumps({"properties": {"mail": mail, "other": mail, "at": address}})
    )
    read_schema(str(path))
    assert caplog.messages == [
        f"{path}: no row is held to these keywords: format, minItem, minLength"
    ]
    wide = {
        "a": {"type": "integer", "minimum": 10**18},
        "b": {"type": "number", "multipleOf": 1_000_003},
    }
    keys_of({"properties": {**wide, "c": {"type": "array", "maxItems": 0}}}, "it")
    assert caplog.messages[1:] == [
        "it: no row is held to these keywords: maxItems, minimum, multipleOf"
    ]


def test_a_format_that_no_row_is_held_to_is_named():
    said = []
    free, held = (
        {"type": "string", "format": "phone"},
        {"type": "string", "format": "uuid"},
    )
    tree_in(
        {"properties": {"a": held, "n": {"type": "integer", "format": "int32"}}},
        "it",
        said.append,
    )
    assert said == []
    for part in (
        free,
        {"type": "array", "items": free},
        {"type": ["string", "null"], "format": "phone"},
    ):
        tree_in({"properties": {"a": part}}, "it", said.append)
        assert said.pop() == "it: no row is held to these keywords: format"
    tree_in({"properties": {"a": free | {"enum": ["1", "2"]}}}, "it", said.append)
    assert said == [], "a choice is held to all of it"


def test_a_list_that_allows_no_item_is_always_empty():
    closed = (
        {"type": "array", "maxItems": 0},
        {"type": ["array", "null"], "items": False},
    )
    for part, needed in product(closed, (["a"], [])):
        within = {
            "properties": {"a": part, "b": {"type": "string"}},
            "required": needed,
        }
        schema = {
            "properties": {**within["properties"], "c": within},
            "required": needed,
        }
        said = []
        tree = tree_in(schema, "it", said.append)
        assert [field.name for field in tree.values()] == ["b", "c.b"]
        assert ObjectOf(tree, {RowAddress(("b",)): "x"}).read() == {"a": [], "b": "x"}
        assert ObjectOf(tree, {RowAddress(("c", "b")): "x"}).read() == {
            "a": [],
            "c": {"a": [], "b": "x"},
        }
        assert said == []


@pytest.mark.parametrize(
    ("schema", "what", "todo"),
    [
        (
            [1, 2],
            "the schema is no schema",
            '{"properties": {"name": {"type": "string"}',
        ),
        (
            {"properties": {"n": {"const": None}}, "required": ["n"]},
            "null or []",
            "another type",
        ),
        (
            {"properties": {"n": {"type": "array", "maxItems": 0}}},
            "null or []",
            "another type",
        ),
        (
            {"properties": {"n": {"const": None}}},
            "'n' allows no value but null",
            "leave it out",
        ),
        (
            {"properties": {"n": {"enum": ["", None]}}},
            "'n' allows no value that is not empty",
            "leave it out",
        ),
    ],
)
def test_a_schema_that_no_row_is_written_for_is_refused_with_its_reason(
    schema, what, todo
):
    with pytest.raises(UserError) as refusal:
        tree_in(schema, "here", [].append)
    assert what in refusal.value.what
    assert todo in refusal.value.todo


def test_the_advice_for_what_is_no_schema_is_taken():
    advice = '{"properties": {"name": {"type": "string"}}}'
    with pytest.raises(UserError) as refusal:
        tree_in([1, 2], "here")
    assert advice in refusal.value.todo.replace(", …", "")
    assert [field.name for field in tree_in(json.loads(advice), "here").values()] == [
        "name"
    ]


def test_a_value_that_the_model_may_word_is_marked():
    said = []
    text = {"type": "string", "x-free": True}
    parts = {
        "a": text,
        "b": {"type": "array", "items": text},
        "c": {"anyOf": [{"type": "null"}, text]},
    }
    parts |= {
        "d": {"type": "string", "x-free": False},
        "e": {"x-free": True},
        "f": {"type": "string"},
    }
    tree = tree_in({"properties": parts}, "it", said.append)
    marked = {field.name: ("x-free", True) in field.keywords for field in tree.values()}
    assert marked == {
        "a": True,
        "b": True,
        "c": True,
        "d": False,
        "e": True,
        "f": False,
    }
    assert not any(("x-free", False) in field.keywords for field in tree.values())
    assert said == []


def test_objects_are_checked_by_the_draft_that_allows_the_schema():
    check = checker({"properties": {"a": {"items": [{"type": "string"}]}}})
    assert [place for place, _ in check({"a": [1]})] == [("a", 1)] and not check(
        {"a": ["x"]}
    )


def test_a_faulty_value_of_a_keyword_is_refused_with_its_property():
    faulty = {
        "pattern": "(",
        "minLength": "3",
        "maxLength": -1,
        "minimum": "1",
        "multipleOf": 0,
        "type": [],
    }
    told = {
        f"'p': the {word} {json.dumps(value)} is ": {word: value}
        for word, value in faulty.items()
    }
    told |= {
        "; name it in the list": {"required": True},
        "write exact, words": {"x-metric": "mostly"},
    }
    told |= {"write true or false": {"x-free": "yes"}, "x-free 1": {"x-free": 1}}
    told |= {
        f"has no list as {word}": {word: value}
        for word, value in (("anyOf", {}), ("oneOf", []))
    }
    for kind, what in (("integer", "imum"), ("string", "Length"), ("array", "Items")):
        told[f"allows no value; in {kind}"] = {
            "type": kind,
            f"min{what}": 5,
            f"max{what}": 3,
        }
    for what, part in {**told, "allows no value": False}.items():
        with pytest.raises(UserError) as refusal:
            tree_in({"properties": {"p": part}}, "here")
        assert (
            "here: the property 'p'" in (said := str(refusal.value))
            and what.partition("; i")[0] in said
        )


def test_what_some_draft_or_engine_allows_is_no_fault():
    odd = [r"^[\w-\.]+$", r"a\Z", r"\(", "[(]", "^.{1,70000}$"]
    parts = {
        f"p{n}": {"type": "string", "pattern": pattern} for n, pattern in enumerate(odd)
    }
    parts["n"] = {
        "type": "number",
        "minimum": 1,
        "exclusiveMinimum": True,
        "required": False,
    }
    parts |= {"s": {"type": "string", "minLength": 3.0}, "t": {"items": [{}]}}
    parts |= {"no": False, "gone": {"const": None}}
    schema, warnings = {"properties": parts, "required": ["gone", "gone"]}, []
    tree = tree_in(schema, "here", warnings.append)
    assert warnings == ["here: left out: the property 'no' allows no value"]
    assert ObjectOf(tree, {RowAddress(("s",)): "abc"}).read() == {
        "s": "abc",
        "gone": None,
    }


def test_a_schema_within_another_object_or_behind_a_mistyped_word_is_pointed_at(
    tmp_path,
):
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    told = {
        "'function.parameters'": {
            "type": "function",
            "function": {"parameters": schema},
        },
        "'json_schema.schema'": {
            "type": "json_schema",
            "json_schema": {"schema": schema},
        },
        "write not 'propertys', but": {"type": "object", "propertys": {}},
    }
    for todo, wrong in told.items():
        with pytest.raises(UserError, match=todo):
            tree_in(wrong, "here")
    (tmp_path / "s.json").write_text(json.dumps(schema), encoding="utf-8-sig")
    assert [*read_schema(str(tmp_path / "s.json"))] == ["a"]


def test_nothing_stands_for_a_lost_label_or_number_that_must_be_there():
    ways = [
        {"properties": {"kind": {"const": one}, "n": {"type": "integer", "minimum": 5}}}
        for one in "ab"
    ]
    tree = tree_in(
        {"oneOf": [{**way, "required": ["kind", "n"]} for way in ways]}, "here"
    )
    assert tree.field.forced
    label = RowAddress((), "label")
    reading = ObjectOf(tree, {label: None})
    assert (reading.read(), reading.lost) == ({}, 1)
    values = {RowAddress(("kind",)): "b", RowAddress(("n",)): None}
    reading = ObjectOf(tree, {label: "b", **values})
    assert (reading.read(), reading.lost) == ({"kind": "b"}, 1)


def test_choices_that_are_no_scalars_or_read_alike_are_chosen_as_json():
    part = {"enum": [[1], {"x": 2}, "1", 1, " a", None]}
    field = tree_in({"properties": {"it": part}}, "here").parts["it"].field
    assert (field.kind, field.enum) == ("json", ("[1]", '{"x": 2}', '"1"', "1", '" a"'))
    assert [field.parsed(text) for text in field.enum] == [[1], {"x": 2}, "1", 1, " a"]


def test_a_list_with_a_part_for_each_place_ends_where_an_optional_one_is_empty():
    number, day = {"type": "integer"}, {"type": "string", "format": "date"}
    tree = tree_in(
        {"properties": {"it": {"prefixItems": [number, day, number], "minItems": 1}}},
        "here",
    )
    for texts, made in (
        (("1", "2024-01-01", "3"), {"it": [1, "2024-01-01", 3]}),
        (("1", "", "3"), {"it": [1]}),
        (("", "2024-01-01"), {}),
    ):
        assert (
            ObjectOf(
                tree, {RowAddress(("it", n)): text for n, text in enumerate(texts, 1)}
            ).read()
            == made
        )


def test_optional_parts_that_no_row_can_hold_are_left_out_and_named_once():
    tree = {
        "properties": {"word": {"type": "string"}, "left": {"$ref": "#/$defs/tree"}},
        "required": ["word"],
    }
    never = {
        "properties": {"a": {"type": "array", "items": {"type": "object"}}},
        "required": ["a"],
    }
    more = {f"f{n}": {"type": "object"} for n in range(8)} | {
        "x" * 1001: {"type": "string"}
    }
    warnings = []
    schema = {
        "properties": {"top": {"$ref": "#/$defs/tree"}, "never": never, **more},
        "$defs": {"tree": tree},
    }
    assert [*keys_of(schema, "here", warnings.append)] == ["top.word"]
    assert warnings == [
        "here: left out: the property 'top.left' refers to itself: #/$defs/tree; the property 'never.a[]' is an object "
        "without properties, or has another type; the property 'f0' is an object without properties, or has another type; "
        "and 8 more"
    ]


def test_what_an_object_violates_is_said_and_nothing_is_fetched():
    warnings = []
    schema = {
        "properties": {
            "day": {"type": "string", "format": "date"},
            "of": {"items": {"properties": {"n": {"minimum": 3}}}},
            "nick": {"type": "string", "enum": ["a"], "nullable": True},
        },
        "not": {"required": ["bad"]},
    }
    violations = checker(schema, "here", warnings.append)
    assert (
        not violations({"day": "2026-11-27", "of": [{"n": 3}], "nick": None})
        and not warnings
    )
    found = violations({"day": "soon", "of": [{"n": 4}, {"n": 1}], "bad": 1})
    assert [keys for keys, _ in found] == [
        ("day",),
        ("of", 2, "n"),
        (),
    ] and "not allowed" in found[2][1]
    assert (
        len(checker({"additionalProperties": False})({str(n): n for n in range(99)}))
        <= 10
    )
    assert not checker({"$ref": "http://127.0.0.1:9/a.json"}, "here", warnings.append)(
        {}
    )
    assert (
        warnings.pop().startswith("here: objects are not checked at the end")
        and not warnings
    )


def test_objects_are_checked_but_for_keywords_that_the_validator_cannot_use():
    warnings, odd = [], {"pattern": r"^[\w-\.]+$"}
    parts = {"p": odd, "n": {"minimum": 1}, "no": {"not": odd}, "l": {"items": odd}}
    schema = {
        "properties": parts,
        "patternProperties": {r"a\Z": {}},
        "additionalProperties": False,
    }
    found = checker(schema, "here", warnings.append)(
        {"p": "?", "n": 0, "no": "a", "other": 1}
    )
    assert found == [(("n",), "0 is less than the minimum of 1")]
    assert "'p': the pattern \"^[" in warnings[0] and warnings[0].endswith(
        "1 more, which cannot be checked"
    )
    old = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "exclusiveMinimum": True,
        "minimum": 1,
    }
    assert checker(old)(1), "it is legal there"


@pytest.mark.extra("pydantic")
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
        "Tree": "models.py:Tree: the property 'kids' refers to itself",
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
    with pytest.raises(
        UserError, match="'a' is an object here and a value at a; give all values"
    ):
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
    ("text", "what", "todo"),
    [
        (
            "customer rating",
            "'rating' is no kind",
            """quotes: --fields '"customer rating"'""",
        ),
        (
            "name, age itn",
            "'itn' is no kind",
            "string, number, integer, boolean, list, date, datetime, time",
        ),
        ('"unit price" numbre', "'numbre' is no kind", "write one of string"),
        ("unit price: a|b", "'price' is no kind", "quotes"),
        (
            'name, "unit price',
            "a quote that does not end",
            """write for example --fields '"unit price\"""",
        ),
        ('menu[]."unit price"', "quotes within a name", '"menu[].unit price"'),
        ('size: 12" | 14"', "quotes within a choice", "--schema"),
        ("kind:", "names no choices", "kind: pub|restaurant"),
        (': a|b, "" int', "a name is empty", "write for example"),
        ("a..b", "a name is empty", "write for example"),
        ("a, a int", "'a' twice", "leave one"),
        ("menu[]", "no key of the list's objects", '"menu list"'),
        (" ,", "names no key", "NAME,NAME"),
    ],
)
def test_what_is_no_key_of_the_short_form_is_refused_with_what_to_write(
    text, what, todo
):
    with pytest.raises(UserError) as refusal:
        read_short(text)
    assert what in refusal.value.what
    assert todo in str(refusal.value.todo)
    assert "\n" not in str(refusal.value)
