"""The trials that docs name can be started: what they import is there."""

import importlib
import pkgutil

import pytest

from tests import trials


@pytest.mark.parametrize(
    "name", [module.name for module in pkgutil.iter_modules(trials.__path__)]
)
def test_every_trial_finds_what_it_imports(name):
    importlib.import_module(f"tests.trials.{name}")
