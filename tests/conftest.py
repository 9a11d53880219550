"""Settings for all tests."""

import gc
import gzip
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from pipedec_cli.data.cache import cache_folder
from pipedec_cli.data.errors import log
from pipedec_cli.jobs import pages
from tests import browser

# Read by huggingface_hub when it is imported: no test reaches for the network, whatever
# it does.
os.environ["HF_HUB_OFFLINE"] = "1"

# Read by OpenMP when torch loads it: workers of pytest-xdist share the cores, a thread
# each.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"

# A busy machine must not fail a property test: what is tested is what is computed, not
# how fast.
settings.register_profile(
    "pipedec", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("pipedec")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """The cache of this run: models that tests prepare must not push out the user's. Compiled kernels are shared.

    So is a folder of what the processes of a run, or the runs of .ci/run, train once.
    """
    from tests.checkpoints import (
        SHARED,
    )  # imports torch, which reads the number of threads

    users = cache_folder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        _copy_kernels(users, cache_folder())
        own = tmp_path_factory.getbasetemp()
        if "PYTEST_XDIST_WORKER" in os.environ:
            own = own.parent
        patch.setenv(SHARED, os.environ.get(SHARED, str(own / "shared")))
        yield
        _copy_kernels(cache_folder(), users)


def _copy_kernels(source: Path, target: Path) -> None:
    """A torn copy does no harm: its checksum is wrong, so that the kernels are made again."""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in source.glob("kernels-*.*"):
        if not (target / path.name).exists():
            shutil.copy2(path, target)


def pytest_collection_finish() -> None:
    """What is imported by now stays: no collection of garbage, which each training asks for, is to look at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a module of an extra which is not installed."""
    for mark in item.iter_markers("extra"):
        pytest.importorskip(*mark.args)


@pytest.fixture(autouse=True)
def no_terminal() -> None:
    """No terminal of an earlier test shows what this test logs."""
    log.handlers.clear()
    log.setLevel(logging.NOTSET)


@pytest.fixture
def page_of() -> Callable[[Path], str]:
    """Reads the page that a job has left. A test that takes it has pages; it is skipped if `page/` was taken out."""
    pytest.importorskip("pipedec_cli.page")
    return partial(Path.read_text, encoding="utf-8")


@pytest.fixture(autouse=True)
def no_pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs leave no pages: their plots take longer than what is trained and compared here."""
    if "page_of" not in request.fixturenames:
        monkeypatch.setattr(pages, "MAKERS", {})


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the test runs in, with no workspace set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PIPEDEC_WORKSPACE", raising=False)
    return tmp_path


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A real browser, for tests of the page and of the service."""
    if why := browser.lacking():
        pytest.skip(f"no page is looked at: {why}")
    with browser.chromium() as started:
        yield started


@pytest.fixture(scope="session")
def trained():
    """The toy T5 as it was trained, saved and loaded again; its name is the folder. Neither is to be changed."""
    from tests.checkpoints import train_toy, trained_once

    return trained_once("toy", train_toy)


@pytest.fixture(params=["operators", "what is fastest here"])
def kernels(request, monkeypatch):
    """The same test with torch's operators, and with compiled kernels where they can be had."""
    if request.param == "operators":
        monkeypatch.setenv("PIPEDEC_NATIVE", "0")


@pytest.fixture
def set_threads():
    """Sets the number of threads, until the test is over."""
    import torch

    threads = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(threads)


@pytest.fixture
def write_lines(tmp_path):
    """Write text lines, or objects as JSON lines, to a file under the test's folder; gzipped if its name says so.

    A byte that is no UTF-8 is given as the surrogate that escapes it: ``\\udcff`` for
    0xff.
    """

    def write(name, *lines, end="\n"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(
            line if isinstance(line, str) else json.dumps(line) for line in lines
        )
        content = (text + end * bool(lines)).encode("utf-8", "surrogateescape")
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write
