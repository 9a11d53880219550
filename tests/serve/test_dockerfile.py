"""The Dockerfile without docker: its steps, line by line, in a clean folder that stands for the root of the image.

What the image gets from Debian is here already, and so are the packages that pip would
fetch: `apt-get` and `useradd` only have to be there, and pip is offline. The wheel is
built and installed from what is copied, as in the image.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from pipedec_cli.serve.settings import ServeSettings
from tests.checkpoints import tiny_checkpoint

ROOT = Path(__file__).parents[2]
#: What the system of the image brings.
STUBS = ("apt-get", "useradd")
PORT = ServeSettings().port


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile in order, each with what follows it."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [
        line.strip()
        for line in text.splitlines()
        if line.strip() and not line.startswith("#")
    ]
    return [
        (name, rest.strip())
        for name, _, rest in (line.partition(" ") for line in lines)
    ]


def only(name: str) -> str:
    """What follows the one instruction of this name."""
    (rest,) = (rest for found, rest in instructions() if found == name)
    return rest


class Image:
    """A folder that stands for the root of an image."""

    def __init__(self, root: Path) -> None:
        self.root = root
        stubs = root / "stubs"
        stubs.mkdir(parents=True)
        for name in STUBS:
            (stubs / name).write_text("#!/bin/sh\n", encoding="utf-8")
            (stubs / name).chmod(0o755)
        environment = root / "python"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", environment], check=True
        )
        packages = next(environment.glob("lib/python*/site-packages"))
        here = [path for path in sys.path if path.endswith("site-packages")]
        (packages / "here.pth").write_text("\n".join(here), encoding="utf-8")
        pip = environment / "bin" / "pip"
        pip.write_text(
            f'#!/bin/sh\nexec {environment}/bin/python -m pip "$@"\n', encoding="utf-8"
        )
        pip.chmod(0o755)
        (root / "home").mkdir()
        self.environment = {
            "PATH": f"{environment}/bin:{stubs}:{os.environ['PATH']}",
            "HOME": str(root / "home"),
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip's way to say that there is none: hatchling is here
            "HF_HUB_OFFLINE": "1",
        }

    def within(self, text: str) -> str:
        """A command line with all absolute paths in the folder of this image."""
        return re.sub(r"(?<![\w.:/*])/(?=\w)", f"{self.root}/", text)

    def copy(self, rest: str) -> None:
        """Copy as docker does: all but what .dockerignore names."""
        source, target = rest.split()
        ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()

        def left_out(folder: str, names: list[str]) -> list[str]:
            at_root = Path(folder) == ROOT
            return [
                name
                for name in names
                if at_root and any(fnmatch(name, one) for one in ignored)
            ]

        shutil.copytree(ROOT / source, self.within(target), ignore=left_out)

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        shell = ["bash", "-euo", "pipefail", "-c", self.within(command)]
        return subprocess.run(
            shell,
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def take(self, name: str, rest: str) -> None:
        """Do what an instruction says; a KeyError for one that this test does not know."""
        if name == "COPY":
            self.copy(rest)
        elif name == "RUN":
            done = self.run(rest)
            assert done.returncode == 0, f"{rest}\n{done.stdout}{done.stderr}"
        else:
            {"FROM", "ARG", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT"}.remove(name)


def test_the_image_has_a_python_and_a_torch_that_the_package_takes_and_the_port_of_the_command():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    python = re.fullmatch(r"python:([\d.]+)-slim", only("FROM"))
    assert python and python[1] in SpecifierSet(project["requires-python"])
    torch = next(
        Requirement(one)
        for one in project["dependencies"]
        if Requirement(one).name == "torch"
    )
    (pinned,) = re.findall(
        r"torch==([\d.]+)", (ROOT / "Dockerfile").read_text(encoding="utf-8")
    )
    assert pinned in torch.specifier
    assert only("EXPOSE") == str(PORT)
    assert f":{PORT}/" in only("HEALTHCHECK")


@pytest.mark.slow
@pytest.mark.extra("uvicorn")
@pytest.mark.extra("gguf")
@pytest.mark.extra("hatchling")
@pytest.mark.skipif(shutil.which("g++") is None, reason="the image has g++")
def test_each_step_of_the_dockerfile_runs_and_what_it_starts_is_healthy_and_answers(
    tmp_path,
):
    image = Image(tmp_path / "image")
    here = f"torch=={version('torch').partition('+')[0]}"
    for name, rest in instructions():
        image.take(name, re.sub(r"torch==[\d.]+", here, rest))
    (package,) = image.run(
        "python -c 'import pipedec_cli; print(pipedec_cli.__file__)'"
    ).stdout.splitlines()
    assert Path(package).is_relative_to(image.root / "python"), (
        "what was installed, not what is tested here"
    )
    tiny_checkpoint(image.root / "model")
    _, _, check = only("HEALTHCHECK").partition("CMD ")
    assert image.run(check.replace(f":{PORT}/", ":9/")).returncode != 0, (
        "nobody listens there"
    )
    entry = [image.within(word) for word in json.loads(only("ENTRYPOINT"))]
    command = [
        shutil.which(entry[0], path=image.environment["PATH"]),
        *entry[1:],
        "--insecure",
        "--port",
        "0",
    ]
    with subprocess.Popen(
        command, env=image.environment, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            events = (json.loads(line) for line in server.stderr)
            ready = next(event for event in events if event["event"] == "ready")
            port = ready["url"].rpartition(":")[2]
            healthy = image.run(check.replace(f":{PORT}/", f":{port}/"))
            assert healthy.returncode == 0, healthy.stderr
            body = json.dumps({"model": ready["model"], "prompt": "a"}).encode()
            ask = Request(
                f"http://127.0.0.1:{port}/v1/completions",
                body,
                {"content-type": "application/json"},
            )
            with urlopen(ask) as answer:
                assert json.load(answer)["choices"][0]["text"] == "A.; B.; C.; D."
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
            *_, last = events
            assert last["event"] == "ended"
        finally:
            server.kill()
