"""The object so far: what is said to be final stands in the object at its end, whatever the model says later."""

import random
from contextlib import suppress
from itertools import pairwise

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.decoding.blind import blind_decoder
from pipedec_cli.decoding.decoder import load
from pipedec_cli.objects.json_schema import tree_in
from pipedec_cli.objects.rows import Rows
from pipedec_cli.objects.so_far import ObjectSoFar
from pipedec_cli.pipeline.decode import Admitted, Finished, Stepped
from tests.model.chats import foreign
from tests.model.told import Told
from tests.objects.test_schemas import LISTED, NESTED, Whim, decoder_of
from tests.trials.schemas import random_schema

TEXT = {"type": "string"}
SOURCE = "On 12 March 2026 I paid 210.50 EUR for order 4471 and nothing came."


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A model that knows nothing."""
    return load(str(foreign(tmp_path_factory.mktemp("foreign"))), device="cpu")


def blind(plain, schema, of_class=None):
    tree = tree_in(schema, "here", [].append)
    rows = Rows(tree, schema=schema, warn=[].append, of_class=of_class)
    return blind_decoder(plain, rows)


def on_a_whim(decoder, seed, **limits):
    """The same of a model that says anything that is allowed."""
    end = getattr(decoder.plan, "end", decoder.checkpoint.eos)
    return seen_of(decoder, Whim(seed, decoder.weights.vocabulary, end), **limits)


def seen_of(decoder, model, **limits):
    """The objects so far, pairs of text and values, and the result."""
    decoder._engines[1] = model
    seen = []
    for event in decoder.run([SOURCE], decoder.method(**limits), 1):
        if isinstance(event, Admitted):
            so_far = ObjectSoFar(decoder.reader, event.grid)
        elif isinstance(event, Stepped):
            if so_far.update():
                seen.append((so_far.text, so_far.values))
        elif not isinstance(event, Finished):
            result = event
    return seen, result


def stands_in(part, whole):
    """Whether an object is a part of another one: lists from their beginning."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(
            key in whole and stands_in(value, whole[key]) for key, value in part.items()
        )
    if isinstance(part, list) and isinstance(whole, list):
        pairs = zip(part, whole, strict=False)
        return len(part) <= len(whole) and all(stands_in(*pair) for pair in pairs)
    return part == whole and type(part) is type(whole)


def assert_final(seen, result):
    """Nothing that was said is taken back."""
    for text, values in seen:
        assert result.text.startswith(text), (text, result.text)
        assert stands_in(values, result.fields), (values, result.fields)
    for (text, values), (later, more) in pairwise(seen):
        assert later.startswith(text) and stands_in(values, more)


def comes_early(seen):
    """Whether values are final before the last call."""
    return any(values for _, values in seen[:-1])


@pytest.mark.parametrize("schema", [NESTED, LISTED], ids=["nested", "listed"])
@pytest.mark.parametrize("limits", [{}, {"time_max": 3}], ids=["whole", "cut"])
def test_rows_that_were_trained_for_take_nothing_back(tmp_path, schema, limits):
    decoder = decoder_of(tmp_path, schema)
    early = 0
    for seed in range(8):
        seen, result = on_a_whim(decoder, seed, **limits)
        assert_final(seen, result)
        early += comes_early(seen)
    assert early


@pytest.mark.parametrize("schema", [NESTED, LISTED], ids=["nested", "listed"])
@pytest.mark.parametrize("limits", [{}, {"time_max": 3}], ids=["whole", "cut"])
def test_rows_without_training_take_nothing_back(plain, schema, limits):
    decoder = blind(plain, schema)
    early = 0
    for seed in range(15):
        seen, result = on_a_whim(decoder, seed, **limits)
        assert_final(seen, result)
        early += comes_early(seen)
    assert early


@pytest.mark.parametrize("count", [40, pytest.param(600, marks=pytest.mark.slow)])
def test_objects_of_any_schema_take_nothing_back(plain, count):
    tried = 0
    for number in range(count):
        schema = random_schema(random.Random(number))
        with suppress(UserError):
            decoder = blind(plain, schema)
            assert_final(*on_a_whim(decoder, number, time_max=12))
            tried += 1
    assert tried > count // 5


PUB = {"name": TEXT, "food": {"enum": ["Thai", "Greek"]}, "town": TEXT}


def told_so_far(plain, schema, of_class=None):
    """The objects so far and at the end of a model that writes two words as name and town, and finds Thai likely."""
    decoder = blind(plain, schema, of_class)
    written = {1: "March 2026 I paid", 3: "EUR"}
    return seen_of(decoder, Told(decoder, ["Thai"], written))


def test_a_value_is_final_before_those_in_front_of_it_and_its_text_waits(plain):
    seen, result = told_so_far(plain, {"properties": PUB, "required": [*PUB]})
    assert_final(seen, result)
    assert seen[0] == ("{", {"food": "Thai"}), "it is scored in the first call"
    assert {"food": "Thai", "town": "EUR"} in [values for _, values in seen]
    assert seen[-1][1] == result.fields


def test_a_value_that_the_schema_will_not_allow_is_held_back(plain):
    held = TEXT | {"not": {"minLength": 1}}
    seen, result = told_so_far(plain, {"properties": PUB | {"name": held}})
    assert_final(seen, result)
    assert result.values_lost == 1 and "name" not in result.fields
    assert {text for text, _ in seen} == {"{"}


def test_where_a_schema_has_conditions_values_that_may_go_wait_for_the_end(plain):
    condition = {"if": {"required": ["town"]}, "then": {"properties": {"food": False}}}
    seen, result = told_so_far(
        plain, {"properties": PUB, "required": ["name"]} | condition
    )
    assert_final(seen, result)
    assert "food" not in result.fields
    assert all("food" not in values for _, values in seen)


def test_what_a_class_checks_comes_in_the_order_of_its_keys(plain):
    schema = {"properties": PUB, "required": [*PUB]}
    seen, result = told_so_far(plain, schema, of_class=lambda _: [])
    assert_final(seen, result)
    for _, values in seen:
        assert [*values] == [*PUB][: len(values)]
