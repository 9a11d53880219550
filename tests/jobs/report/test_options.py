"""The options of `pipedec generate` that a report gives for a decoder: they make the very predictions that it measured."""

import shlex
import shutil
from pathlib import Path

from tests.checkpoints import change
from tests.jobs.report.running import options_of, report_of, reported, trained_with
from tests.running import lines_of, read_json, run

TELLING = (
    "decoder",
    "delay",
    "empty_rows",
    "exact",
    "source_prefix",
    "max_source_tokens",
)


def made_with(manifest):
    """By what, and how."""
    made = read_json(manifest)
    return (
        made["model"],
        made.get("drafter"),
        {name: made["settings"].get(name) for name in TELLING},
    )


def options_of_all(place):
    """The options by decoder, after `generate` has taken each of them and has done what was measured."""
    found = {}
    for name, entry in report_of(place)[1].items():
        found[name] = options_of(entry)
        run(
            "generate",
            *shlex.split(found[name]),
            "--device",
            "cpu",
            "--quiet",
            "--out",
            "again.jsonl",
        )
        kept = Path(entry["quality"]["predictions"]).with_suffix(".manifest.json")
        assert made_with("again.manifest.json") == made_with(kept), name
    return found


def test_the_workspace_and_the_dtype_are_among_the_options(workspace):
    workspace.rename("other place")
    shown = "--dtype bfloat16 --workspace 'other place'"
    given = ("--workspace", "other place", "--dtype", "bfloat16", "--max-tokens", "40")
    reported("--delays", "1", "--compare", "exact-source,exact-pipelined", *given)
    _, decoders = report_of(Path("other place"))
    assert options_of(decoders["Δt = 1"]) == f"--delay 1 --max-tokens 40 {shown}"
    assert options_of(decoders["exact-pipelined"]).endswith(
        f"--draft pipelined {shown}"
    )
    assert options_of(decoders["exact-source"]).endswith(f"--draft source {shown}")
    # What is timed has the bound of what is scored.
    for entry in decoders.values():
        assert entry["settings"]["max_tokens"] == "40"


def test_each_delay_is_decoded_by_the_rule_of_the_checkpoint_that_serves_it(workspace):
    other = workspace / "models/pipelined-delay2"
    shutil.copytree(workspace / "models/pipelined", other)
    trained_with(workspace / "models/pipelined", delay=1)
    trained_with(other, delay=2, empty_rows="stop")
    reported("--delays", "1,2")
    two = f"--model {other} --delay 2"
    options = options_of_all(workspace)
    assert [options[name] for name in ("Δt = 1", "Δt = 2")] == ["--delay 1", two]
    rules = [
        one["settings"].get("empty_rows") for one in report_of(workspace)[1].values()
    ]
    assert rules == [None, "retry", "stop"]


def test_what_a_model_from_elsewhere_reads_as_the_pipelined_decoder_does_is_told(
    workspace,
):
    shutil.move(workspace / "models/sequential", "hf-t5")
    change(Path("hf-t5/config.json"), "pipedec")
    trained_with(
        workspace / "models/pipelined", source_prefix="say: ", max_source_tokens=30
    )
    reported(
        "--baseline",
        "hf-t5",
        "--delays",
        "1",
        "--compare",
        "exact-pipelined,exact-source",
    )
    alike = "--prompt-template 'say: {source}' --max-source-tokens 30"
    assert options_of_all(workspace) == {
        "sequential": f"--model hf-t5 {alike}",
        "Δt = 1": "--delay 1",
        "exact-pipelined": "--delay 1 --exact hf-t5 --draft pipelined",
        "exact-source": f"--exact hf-t5 --draft source {alike}",
    }


def test_models_that_were_given_are_named_whatever_signs_their_names_have(workspace):
    shutil.move(workspace / "models/pipelined", "my pipe")
    shutil.copytree(workspace / "models/sequential", "it's plain")
    told = ("--model", "my pipe", "--baseline", "it's plain")
    reported(*told, "--delays", "1,wait", "--compare", "exact-pipelined")
    plain = """'it'"'"'s plain'"""
    assert options_of_all(workspace) == {
        "sequential": f"--model {plain}",
        "Δt = 1": "--model 'my pipe' --delay 1",
        "waiting schedule": "--model 'my pipe' --delay wait",
        "exact-pipelined": f"--model 'my pipe' --delay 1 --exact {plain} --draft pipelined",
    }


def test_the_commands_of_a_report_on_some_data_write_the_texts_that_it_compares(
    workspace,
):
    shutil.move(workspace / "data/test.jsonl", "own.jsonl")
    reported("own.jsonl", "--limit", "3", "--delays", "1", "--compare", "exact-source")
    for name, command in options_of_all(workspace).items():
        assert "own.jsonl" in command and "--limit" not in command, name
        run(
            "generate", *shlex.split(command), "--out", "again.jsonl", "--device", "cpu"
        )
        compared = Path(report_of(workspace)[1][name]["quality"]["predictions"])
        texts = [
            [line["prediction"] for line in lines_of(path)]
            for path in (compared, "again.jsonl")
        ]
        assert texts[0] == texts[1][:3] and len(texts[0]) == 3 < len(texts[1])
