"""Some schemas that chance has made, for every change; the script makes thousands."""

import pytest

from tests.trials.schemas import hostile_schema, random_schema, swept


@pytest.mark.parametrize(("make", "count"), [(random_schema, 30), (hostile_schema, 10)])
def test_each_schema_is_taken_or_refused_in_one_line(make, count):
    taken, wrong = swept(make, range(count))
    assert taken[True] > count // 5
    assert not wrong
