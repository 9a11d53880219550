"""What an object violates in a JSON Schema, and schemas that cannot be used as they are."""

from pipedec_cli.objects.checking import checker


def test_objects_are_checked_by_the_draft_that_allows_the_schema():
    check = checker({"properties": {"a": {"items": [{"type": "string"}]}}})
    assert [place for place, _ in check({"a": [1]})] == [("a", 1)] and not check(
        {"a": ["x"]}
    )


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
