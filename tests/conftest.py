"""Settings for all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Read by huggingface_hub when it is imported: no test reaches for the network, whatever it does.
os.environ["HF_HUB_OFFLINE"] = "1"

# Read by OpenMP when torch loads it: workers of pytest-xdist share the cores, a thread each.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"

# A busy machine must not fail a property test: what is tested is what is computed, not how fast.
settings.register_profile("pipedec", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pipedec")


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the test runs in, with no workspace set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PIPEDEC_WORKSPACE", raising=False)
    return tmp_path
