"""`pipedec generate` as a user runs it: where sources come from, what is made of them, and where it goes."""

import io
import os
import shlex
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from pipedec_cli.data.writing import write_json
from pipedec_cli.jobs.generate import generate as run_generate
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.view.progress import Terminal
from tests.checkpoints import SOURCES, TOLD, tiny_checkpoint
from tests.jobs.generate.running import (
    ROWS,
    done,
    lines,
    new_test_set,
    printed,
    refused,
    written,
)
from tests.running import generated, read_json, write_lines

SEGMENTS = [list(told) for _, told in TOLD * 2]


def test_the_bare_command_takes_the_workspace_and_says_where_it_wrote_and_what_is_next(
    place,
):
    outcome = done()
    file = generated(place, "pipelined-delay2")
    rows = lines(file)
    assert [row["segments"] for row in rows] == SEGMENTS
    for row, given_row in zip(rows, ROWS, strict=True):
        assert given_row.items() <= row.items()
        made = {"prediction", "segments", "steps", "tokens", "truncated"}
        assert set(row) - set(given_row) == {*made, "grid", "source_token_ids"}
    assert outcome.stdout == ""
    for told in (
        f"generations/{file.name}",
        "pipedec score",
        "examples/s",
        "tokens a call",
    ):
        assert told in outcome.stderr


def test_the_manifest_says_what_it_was_made_with_and_flags_win_over_a_config_file(
    place,
):
    Path("c.toml").write_text(
        "[generate]\ndelay = 3\nbatch-size = 2\nlimit = 2\n", encoding="utf-8"
    )
    done("--config", "c.toml", "--limit", "1")
    content = read_json(
        generated(place, "pipelined-delay3").with_suffix(".manifest.json")
    )
    assert content["examples"] == 1
    assert content["segmentation"]["level"] == "phrase"
    assert len(content["model"]["sha256"]) == len(content["data"]["sha256"]) == 64
    assert [len(file["sha256"]) for file in content["inputs"]] == [64]
    assert content["versions"]["torch"]
    wanted = {
        "delay": 3,
        "batch_size": 2,
        "dtype": "float32",
        "device": "cpu",
        "time_max": 50,
        "limit": 1,
    }
    assert {**wanted, "empty_rows": "retry"}.items() <= content["settings"].items()
    assert content["settings"]["threads"] >= 1


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("", "pipelined-delay2"),
        ("--delay 1", "pipelined-delay1"),
        ("--delay wait", "pipelined-wait"),
        ("--model sequential", "sequential"),
        ("--model x/model", "model-delay2"),
        ("'my data.jsonl'", "pipelined-delay2-my-data"),
        ("--split dev", "pipelined-delay2-dev"),
    ],
)
def test_a_file_is_called_after_model_delay_and_data_and_a_hash(
    place, models, options, name
):
    Path("x").mkdir()
    Path("x/model").symlink_to(models / "pipelined")
    write_lines(place / "data" / "dev.jsonl", ROWS[0])
    write_lines("my data.jsonl", ROWS[0])
    new_test_set(place, *ROWS[:2])
    done(*shlex.split(options))
    assert [*(place / "generations").glob("*.jsonl")] == [generated(place, name)]


def test_runs_that_write_other_lines_have_files_of_their_own_and_equal_ones_have_one(
    place, models
):
    for folder, kind in (("x", "pipelined"), ("y", "delay1")):
        Path(folder).mkdir()
        Path(folder, "model").symlink_to(models / kind)
        write_lines(f"{folder}/in.jsonl", {"source": f"a {folder}"})
    new_test_set(place, *ROWS[:2])
    kinds = (
        *(
            "",
            "--set empty_rows=stop",
            "--set sub_max=4",
            "--max-source-tokens 9",
            "--dtype bfloat16",
        ),
        *(
            "--limit 1",
            "--model x/model --delay 1",
            "--model y/model --delay 1",
            "x/in.jsonl",
            "y/in.jsonl",
        ),
    )
    for number, options in enumerate(kinds, start=1):
        done(*options.split())
        assert len([*(place / "generations").glob("*.jsonl")]) == number, options
    for options in (
        "--batch-size 1",
        "--model ./x/../x/model --delay 1",
        "--set trace=false",
    ):
        assert "is whole already" in done(*options.split(), "--resume").stderr
    new_test_set(place, *ROWS[:3])
    done()
    assert len([*(place / "generations").glob("*.jsonl")]) == len(kinds) + 1, (
        "other data"
    )
    names = sorted(path.name for path in (place / "generations").iterdir())
    place.rename("elsewhere")
    assert "is whole already" in done("-w", "elsewhere", "--resume").stderr
    assert (
        sorted(path.name for path in Path("elsewhere/generations").iterdir()) == names
    ), "it was moved"


def test_the_sequential_decoder_cuts_whole_texts_and_the_waiting_schedule_makes_them_in_turn(
    place,
):
    whole = written("whole.jsonl", "--model", "sequential")
    assert [row["prediction"] for row in whole] == [
        " ".join(told) for _, told in TOLD * 2
    ]
    waiting = written("waiting.jsonl", "--delay", "wait")
    assert whole[0]["segments"] == waiting[0]["segments"] == SEGMENTS[0]
    assert all(
        row["steps"] == row["tokens"] + len(row["segments"]) + 1 for row in waiting
    )


@pytest.mark.parametrize("draft", ["pipelined", "source", "jacobi"])
def test_exact_mode_writes_the_plain_texts_in_fewer_calls_and_goes_on_as_it_was_begun(
    place, draft
):
    plain = written("plain.jsonl", "--model", "sequential")
    exact = (
        "--exact",
        place / "models" / "sequential",
        "--draft",
        draft,
        "--out",
        "exact.jsonl",
    )
    assert "exact, drafted by" in done(*exact).stderr
    made = lines(Path("exact.jsonl"))
    for row, other in zip(made, plain, strict=True):
        assert row.pop("steps") <= other.pop("steps") or draft == "pipelined"
        assert (
            row.pop("draft_steps", None)
            if draft == "pipelined"
            else "draft_steps" not in row
        )
        assert row == other
    whole, told = Path("exact.jsonl").read_bytes(), read_json("exact.manifest.json")
    assert told["settings"]["exact"] == draft
    assert ("drafter" in told) == (draft == "pipelined")
    # What guesses cost is measured once a run: a resumed one makes as many calls.
    Path("exact.jsonl").write_bytes(b"".join(whole.splitlines(keepends=True)[:5]))
    write_json(Path("exact.manifest.json"), {**told, "costs": [1.0, 3.0, 9.0]})
    talk = done(*exact, "--resume", "--batch-size", "1").stderr
    assert (
        "no guess has saved a decoder call: one more guess makes a call 3 times as long here"
        in talk
    )
    assert read_json("exact.manifest.json")["costs"] == [1.0, 3.0, 9.0]
    assert [row["prediction"] for row in lines(Path("exact.jsonl"))] == [
        row["prediction"] for row in plain
    ]


def test_the_draft_of_exact_mode_is_the_pipelined_decoders_where_there_is_one(place):
    sequential = place / "models" / "sequential"
    done("--exact", sequential, "--delay", "1", "--limit", "2")
    (place / "models" / "pipelined").unlink()
    done("--exact", sequential, "--limit", "2")
    assert generated(place, "sequential-exact-pipelined-delay1").is_file()
    assert generated(place, "sequential-exact-source").is_file()


def from_elsewhere(models):
    """The plain T5 as a folder that `pipedec train` has not made; gives what stood in its config.json for us."""
    plain = Path("my-t5")
    shutil.copytree(models / "sequential", plain)
    config = read_json(plain / "config.json")
    settings = config.pop("pipedec")
    write_json(plain / "config.json", config)
    return plain, settings


def test_a_t5_from_elsewhere_reads_in_exact_mode_what_the_pipelined_decoder_reads(
    place, models
):
    plain, _ = from_elsewhere(models)
    ours = tiny_checkpoint(Path("prefixed"), source_prefix="say: ", max_source_tokens=9)
    drafted = written(
        "ours.jsonl", "--model", ours, "--set", "trace=true", "--limit", "3"
    )
    exact = written(
        "exact.jsonl",
        "--exact",
        plain,
        "--model",
        ours,
        "--set",
        "trace=true",
        "--limit",
        "3",
    )
    assert [row["source_token_ids"] for row in exact] == [
        row["source_token_ids"] for row in drafted
    ]
    settings = read_json("exact.manifest.json")["settings"]
    assert (settings["source_prefix"], settings["max_source_tokens"]) == ("say: ", 9)
    written("alone.jsonl", "--exact", plain, "--draft", "source", "--limit", "1")
    assert read_json("alone.manifest.json")["settings"]["source_prefix"] == ""
    options = ("--draft", "source", "--limit", "1", "--set", "trace=true")
    written(
        "asked.jsonl", "--exact", plain, "--prompt-template", "say: {source}", *options
    )
    assert (
        lines(Path("asked.jsonl"))[0]["source_token_ids"][:2]
        == exact[0]["source_token_ids"][:2]
    )
    # one that was trained with a prefix, or without, keeps to that
    own = place / "models" / "sequential"
    written("own.jsonl", "--exact", own, "--model", ours, "--limit", "1")
    assert read_json("own.manifest.json")["settings"]["source_prefix"] == ""


def test_a_t5_from_elsewhere_has_its_texts_cut_as_the_workspaces_targets_were(
    place, models
):
    plain, settings = from_elsewhere(models)
    (plain / "sentences.json").rename(place / "data" / "sentences.json")
    assert {
        len(row["segments"]) for row in written("alone.jsonl", "--model", plain)
    } == {1}

    write_json(place / "data" / "segmentation.json", settings["segmentation"])
    cut = [row["segments"] for row in written("cut.jsonl", "--model", plain)]
    assert cut == [
        row["segments"] for row in written("ours.jsonl", "--model", "sequential")
    ]
    assert max(map(len, cut)) > 1


def test_texts_come_out_as_texts_on_stdout_or_as_objects_or_go_to_a_file(place):
    outcome = done("--text", SOURCES[0], "--text", SOURCES[1])
    assert outcome.stdout.splitlines() == ["; ".join(TOLD[0][1]), TOLD[1][1][0]]
    (row,) = printed("--text", SOURCES[1], "--json", "-q")
    made = {
        "prediction": TOLD[1][1][0],
        "segments": SEGMENTS[1],
        "steps": 7,
        "tokens": 6,
        "truncated": None,
    }
    assert row == {"id": "1", **made, "source": SOURCES[1]}
    assert written("one.jsonl", "--text", SOURCES[1]) == [row]
    texts = TOLD[1][1][0] + "\n"
    write_lines("in.jsonl", {"source": SOURCES[1]})
    Path("in.txt").write_text(SOURCES[1] + "\n", encoding="utf-8")
    for given in (("--text", SOURCES[1]), ("in.txt", "--plain"), ("in.jsonl",)):
        shown = done(*given, "--out", "-").stdout
        assert (shown == texts) == (given != ("in.jsonl",)), (
            "what comes as text goes as text"
        )
        assert printed(*given, "--out", "-", "--json")[0]["prediction"] == texts.strip()
    assert not (place / "generations").exists()


def test_standard_input_to_standard_output(place):
    given = '{"source": "a", "id": "x"}\n\n{"source": "Mr. Smith"}\n'
    rows = printed("-", "--out", "-", stdin=given)
    assert [(row["id"], row["segments"]) for row in rows] == [
        ("x", SEGMENTS[2]),
        ("3", SEGMENTS[4]),
    ]
    assert printed("-", stdin=given) == rows
    assert done("-", "--plain", stdin="a\n").stdout == rows[0]["prediction"] + "\n"
    assert (
        "1 invalid record skipped; the first"
        in done("-", "--skip-invalid", stdin=given + "{").stderr
    )
    assert not (place / "generations").exists()


def test_plain_text_a_source_a_line_can_be_resumed(place):
    text, out = "a\r\n\nMr. Smith\na\n", Path("out.jsonl")
    done("-", "--plain", "--out", out, stdin=text)
    rows = lines(out)
    assert [(row["id"], row["source"]) for row in rows] == [
        ("1", "a"),
        ("3", "Mr. Smith"),
        ("4", "a"),
    ]
    assert [row["segments"] for row in rows] == [SEGMENTS[2], SEGMENTS[4], SEGMENTS[2]]
    Path("sources.csv").write_text(text, encoding="utf-8")
    assert printed("sources.csv", "--plain", "--json", "--out", "-") == rows
    whole = out.read_bytes()
    out.write_bytes(whole[: len(whole) // 2])
    done("-", "--plain", "--out", out, "--resume", stdin=text)
    assert lines(out) == rows
    refused("--plain")


def test_fields_by_other_names(place):
    write_lines("other.jsonl", {"id": "k", "body": "a", "gold": "A. B."})
    names = ("--source-field", "body", "--set", "target_field=gold")
    (row,) = printed("other.jsonl", *names, "--out", "-")
    assert (row["id"], row["source"], row["target"]) == ("k", "a", "A. B.")
    assert (row["body"], row["gold"]) == ("a", "A. B.")


def test_a_split_of_a_folder(place):
    for split in ("train", "dev"):
        write_lines(f"folder/{split}.jsonl", {"source": "a", "of": split})
    assert printed("folder", "--split", "dev", "--out", "-")[0]["of"] == "dev"
    refused("folder")
    refused("folder/dev.jsonl", "--split", "dev")


def test_special_files_get_lines_and_no_manifest(place):
    done("--out", os.devnull)
    assert not Path("/dev/null.manifest.json").exists()


def test_the_source_prefix_of_the_training_is_used_again(place):
    model = tiny_checkpoint(Path("prefixed"), source_prefix="Mr. ")
    (row,) = printed(
        "--text", "Smith", "--model", model, "--set", "trace=true", "--json"
    )
    assert (row["source"], row["segments"]) == ("Smith", SEGMENTS[4])


def test_a_trace_is_the_grid_token_by_token(place, models):
    (row,) = printed(
        "--text", SOURCES[0], "--set", "trace=true", "--delay", "2", "--json", "-q"
    )
    checkpoint = load_checkpoint(str(models / "pipelined"))
    text = checkpoint.codec()
    told = [text.ids([segment])[0] + [checkpoint.eos] for segment in TOLD[0][1]]
    rows = [
        *zip((0, 2), told, strict=True),
        (4, [checkpoint.eos]),
        (6, [checkpoint.eos]),
    ]
    assert row["grid"] == [{"start": start, "tokens": tokens} for start, tokens in rows]
    assert row["source_token_ids"] == text.source(SOURCES[0])[0]
    assert row["tokens"] == sum(map(len, told)) - 2


def test_live_shows_the_grid_on_stderr_and_leaves_stdout_to_the_data(place):
    outcome = done("--text", SOURCES[0], "--live")
    assert outcome.stdout == "; ".join(TOLD[0][1]) + "\n"
    assert all(told in outcome.stderr for told in ("<bos>", "cheap", "name[The Mill]"))


def test_live_on_a_terminal_ends_with_the_whole_grid(place):
    screen = io.StringIO()
    console = Console(
        file=screen, force_terminal=True, width=100, height=40, markup=False
    )
    settings = GenerateSettings(
        text=("it is not [red]</s>\x1b[2J",), out="out.jsonl", live=True
    )
    run_generate(settings, Terminal(console=console))
    assert all(told in screen.getvalue() for told in ("<eos>", "[red]</s>", "finished"))
    assert "\x1b[2J" not in screen.getvalue()
