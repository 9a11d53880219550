"""Every test of `pipedec segment` runs in an empty folder."""

import pytest


@pytest.fixture(autouse=True)
def _in_an_empty_folder(empty_folder):
    pass
