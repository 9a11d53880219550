"""Fixtures that the tests of the model share."""

import pytest
import torch

from tests.checkpoints import train_toy, trained_once


@pytest.fixture(scope="session")
def trained():
    """The toy T5 as it was trained, saved and loaded again; its name is the folder. Neither is to be changed."""
    return trained_once("toy", train_toy)


@pytest.fixture(params=["operators", "what is fastest here"])
def kernels(request, monkeypatch):
    """The same test with torch's operators, and with compiled kernels where they can be had."""
    if request.param == "operators":
        monkeypatch.setenv("PIPEDEC_NATIVE", "0")


@pytest.fixture
def set_threads():
    """Sets the number of threads, until the test is over."""
    threads = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(threads)
