"""From examples to what is written."""

from hypothesis import given
from hypothesis import strategies as st

from pipedec_cli.data.importers import Example, Tally, cleaned


def example(**changes):
    return Example(**({"where": "f:1", "id": None, "source": "s", "target": "t"} | changes))


def write(*examples):
    tally = Tally()
    return list(cleaned(examples, tally)), tally


def test_example_without_a_source_is_left_out_and_counted_with_its_place():
    objects, tally = write(example(source=" "), example(where="f:2"), example(source="", where="f:3"))
    assert [item["id"] for item in objects] == ["2"]
    assert (tally.examples, tally.times["left_out"]) == (1, 2)
    assert tally.notes() == ["2 without a source left out (first: f:1)"]


def test_missing_and_empty_targets_are_given_out_and_counted():
    objects, tally = write(example(target=None), example(target=()), example(target=""))
    assert objects[0] == {"id": "1", "source": "s"}
    assert [item["target"] for item in objects[1:]] == [[], ""]
    assert (tally.as_json()["without_target"], tally.as_json()["empty_targets"]) == (1, 2)


def test_segments_become_a_list_further_fields_are_kept_and_variants_counted():
    extra = {"keyphrase_variants": [["a", "b"]]}
    objects, tally = write(example(target=("a", "b"), extra=extra), example(target="a. b."))
    assert [item["target"] for item in objects] == [["a", "b"], "a. b."]
    assert objects[0]["keyphrase_variants"] == [["a", "b"]]
    assert tally.as_json()["with_variants"] == 1


@given(st.lists(st.sampled_from([None, "1", "2", "1-2", "a"]), max_size=12))
def test_identifiers_are_unique_and_first_come_keeps_its_own(identifiers):
    objects, tally = write(*(example(id=identifier) for identifier in identifiers))
    given_out = [item["id"] for item in objects]
    assert len(set(given_out)) == len(given_out) == len(identifiers)
    wanted = [identifier or str(number) for number, identifier in enumerate(identifiers, start=1)]
    changed = sum(ours != theirs for ours, theirs in zip(given_out, wanted, strict=True))
    assert changed == tally.times["renamed"]
    assert given_out[:1] == wanted[:1]
