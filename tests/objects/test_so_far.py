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
    """The objects so far and at the end: lists of (text, values), then the result."""
    end = getattr(decoder.plan, "end", decoder.checkpoint.eos)
    decoder._engines[1] = Whim(seed, decoder.weights.vocabulary, end)
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
