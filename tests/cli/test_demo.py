"""`pipedec demo`: all of the workflow, in small; and the model that ships with it."""

import re
from collections import Counter

import pytest
from safetensors import safe_open

import pipedec_cli
from pipedec_cli.cli import demo
from pipedec_cli.data.demo import check_facts, make_demo
from tests.running import read_json, refused
from tests.trials.readme import ROOT


def form(folder):  # without what depends on the number of examples
    config = read_json(folder / "config.json")
    del (
        config["vocab_size"],
        config["pipedec"]["time_max"],
        config["transformers_version"],
    )
    with safe_open(folder / "model.safetensors", "np") as weights:
        return config, [
            (name, weights.get_slice(name).get_dtype())
            for name in weights.keys()  # noqa: SIM118
        ]


@pytest.mark.slow
def test_the_demo_runs_every_command_and_makes_what_ships_and_ends_in_what_to_do_next(
    tmp_path, capsys, page_of
):
    out = tmp_path / "demo"
    demo.demo(demo.DemoSettings(updates=60, examples=200, test=4, out=out))
    stderr = capsys.readouterr().err
    made = out / "models" / "pipelined"
    assert all((made / file.name).exists() for file in demo.SHIPPED.iterdir())
    assert form(made) == form(demo.SHIPPED)
    assert "Decoders compared" in page_of(out / "report" / "report.html")
    facts = read_json(out / "report" / "facts.json")
    assert set(facts) == {
        "sequential",
        *(f"pipelined-delay{delay}" for delay in (1, 2, 3)),
    }
    told = [line for line in stderr.splitlines() if "facts right" in line]
    assert [line.partition(":")[0] for line in told] == [
        "Δt = 1",
        "Δt = 2",
        "Δt = 3",
        "sequential",
    ]
    assert [f"\n{number} of 5, about " in stderr for number in range(1, 6)] == [
        True
    ] * 5
    assert "checkpoint-N" not in stderr and not list(out.glob("models/*/checkpoint-*"))
    assert "made with --limit" not in stderr, "the demo set it itself"
    assert all(count["right"] + count["missing"] > 0 for count in facts.values())
    assert "next: " not in stderr  # what a command by itself would say
    assert stderr.endswith(f"{demo.NEXT}\n")


def test_the_readme_has_the_next_steps_of_the_demo():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\* (.*?), ", demo.NEXT, re.MULTILINE)
    commands = re.findall(r"pipedec [^&\n]*[^&\s]", demo.NEXT)
    assert len(steps) == 4 < len(commands)
    assert [named for named in (*steps, *commands) if named not in readme] == []


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_the_model_that_ships_is_small_and_states_the_facts_of_sources_that_it_has_not_seen(
    delay,
):
    assert sum(file.stat().st_size for file in demo.SHIPPED.iterdir()) < 3e6
    decoder, count = pipedec_cli.load(str(demo.SHIPPED)), Counter[str]()
    sources = [record["source"] for record in make_demo(60, seed=7)]
    for source, made in zip(
        sources, decoder.texts(sources, decoder.method(delay)), strict=True
    ):
        count.update(check_facts(made.text, source))
    assert (
        count["right"] >= 0.95 * (count["right"] + count["missing"])
        and count["wrong"] <= 3
    )


def test_the_demo_touches_no_folder_that_is_not_its_own(tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")
    refused("demo", "--out", tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "keep me"


def test_a_demo_that_is_stopped_says_that_it_starts_over(tmp_path, monkeypatch, capsys):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo.generate, "generate", stopped)
    with pytest.raises(KeyboardInterrupt):
        demo.demo(demo.DemoSettings(out=tmp_path / "demo"))
    assert "the demo itself starts over when it is run again" in capsys.readouterr().err
