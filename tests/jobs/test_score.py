"""`pipedec score` as it is typed: tables on stdout, talk on stderr, files that are saved, mistakes in one line."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.running import lines_of, read_json, refused, run, write_lines
from tests.words import same_words

pytestmark = pytest.mark.usefixtures("empty_folder")

score = partial(run, "score")
SCORES = Path("pipedec-workspace/scores")


def predictions(path: str, texts: dict[str, str], **more: Any) -> None:
    more = {"source": "s", "target": "the red cat", **more}
    rows = []
    for key, text in texts.items():
        rows.append({"id": key, "prediction": text, "segments": [text], **more})
    write_lines(path, *rows)


def in_json(*arguments: str) -> dict[str, Any]:
    """The scores on stdout."""
    return json.loads(score(*arguments, "--json").stdout)


def saved_as(name: str, ending: str = ".json") -> Path:
    """The file of that name and a hash in the workspace."""
    (path,) = SCORES.glob(f"{name}-{'[0-9a-f]' * 8}{ending}")
    return path


def manifest_of(out: str, **content: Any) -> None:
    Path(out).with_suffix(".manifest.json").write_text(json.dumps(content))


def test_a_table_goes_to_stdout_talk_to_stderr_and_scores_to_the_workspace():
    predictions("out.jsonl", {"a": "the red cat", "b": "a dog"})
    result = score("out.jsonl")
    same_words(result.stdout)
    same_words(result.stderr)
    saved = read_json(saved_as("out"))
    assert saved["values"]["rouge1"] == 50.0
    assert saved["signature"].startswith("rouge|score:f1|stem:yes|")
    assert saved["rows"] == {"scored": 2, "expected": None}
    assert saved["failures"]["duplicated_rate"] == 0.0
    assert saved["manifest"]["settings"]["protocol"] == "rouge"
    (read,) = saved["manifest"]["inputs"]
    assert (read["path"], len(read["sha256"])) == ("out.jsonl", 64)
    rows = lines_of(saved_as("out", ".examples.jsonl"))
    assert [(row["id"], row["rouge1"]) for row in rows] == [("a", 100.0), ("b", 0.0)]


def test_with_json_what_is_saved_is_all_there_is_on_stdout():
    predictions("out.jsonl", {"a": "the red cat", "b": "a dog"})
    result = score("out.jsonl", "--json", "--quiet", "--out", "here/scores.json")
    saved = read_json("here/scores.json")
    assert json.loads(result.stdout) | {"manifest": saved["manifest"]} == saved
    assert result.stderr == ""
    assert Path("here/scores.examples.jsonl").exists()
    assert not Path("pipedec-workspace").exists()


def sure_rows(**changes):
    """Ten values, of which the five surest are right."""
    rows = []
    for n in range(10):
        row = {"prediction": {"a": "x"}, "target": {"a": "xy"[n < 5]}}
        rows.append({**row, "confidence": {"a": n / 10}, **changes})
    return rows


def test_objects_with_confidences_are_told_by_how_sure_they_were():
    write_lines("sure.jsonl", *sure_rows())
    same_words(score("sure.jsonl").stdout)
    reliability = in_json("sure.jsonl")["reliability"]
    assert (reliability["auc"], reliability["threshold"]) == (1.0, 0.5)
    write_lines("wrong.jsonl", *sure_rows(confidence={"b": [1]}))
    assert "reliability" not in in_json("wrong.jsonl")
    write_lines("never.jsonl", *sure_rows(target={"a": "z"}))
    same_words(score("never.jsonl").stdout)


def with_schema(*fields: Any) -> None:
    """Let the manifest of out.jsonl say how values of fields are compared."""
    named = [{"name": name, "keywords": [["x-metric", how]]} for name, how in fields]
    manifest_of("out.jsonl", segmentation={"fields": named})


def test_values_are_compared_as_the_schema_says_or_the_user():
    made, right = {"a": "the mill", "b": 3}, {"a": "mill", "b": 3.1}
    write_lines("out.jsonl", {"source": "s", "prediction": made, "target": right})
    with_schema(("a", "words"), ("b", 0.2))
    for metrics, signed, f1 in (
        ("", "a:words|b:0.2", 250 / 3),
        ("b 2%", "a:words|b:2%", 100 / 3),
        ("b 4%, a exact", "a:exact|b:4%", 50),
    ):
        more = ("--set", f"metrics={metrics}") if metrics else ()
        scores = in_json("out.jsonl", *more)
        assert f"|avg:micro|{signed}|" in scores["signature"]
        assert scores["values"]["fields_f1"] == pytest.approx(f1)
    wrong = score("out.jsonl", "--set", "metrics=a x", exit_code=2)
    same_words(wrong.stderr)
    refused("score", "out.jsonl", "--set", "metrics=aa words")
    with_schema(("a", "mostly"))
    refused("score", "out.jsonl")


def test_keys_that_no_prediction_has_are_named_since_they_count_as_dropped():
    right = {"a": "x", "b": "y"}
    write_lines("o.jsonl", {"source": "s", "prediction": {"a": "x"}, "target": right})
    same_words(score("o.jsonl").stderr)


def test_without_a_file_the_workspaces_newest_predictions_are_scored():
    refused("score")
    place = "pipedec-workspace/generations"
    predictions(f"{place}/old.jsonl", {"a": "x"})
    predictions(f"{place}/new.jsonl", {"a": "the red cat"})
    # What a teacher has written since for the training data is no test.
    teachers = f"{place}/sequential-train-0123abcd.jsonl"
    predictions(teachers, {"a": "y"})
    os.utime(teachers, (2e9, 2e9))
    os.utime(f"{place}/old.jsonl", (1, 1))
    # Nor is a list of what was set aside.
    write_lines(f"{place}/new.invalid.jsonl", {"where": "x:1", "what": "wrong"})
    result = score("--json")
    assert json.loads(result.stdout)["predictions"] == f"{place}/new.jsonl"
    same_words(result.stderr)


def test_two_files_are_compared_with_a_paired_interval():
    predictions("ours.jsonl", {"a": "the red cat", "b": "the red cat", "c": "the cat"})
    predictions("theirs.jsonl", {"c": "the cat", "b": "a dog", "a": "the red cat"})
    pair = in_json("ours.jsonl", "theirs.jsonl")
    difference = pair["differences"]["rouge1"]
    assert difference["value"] == pytest.approx(100 / 3)
    assert (difference["low"], pair["identical_predictions"]) == (0.0, 2)
    saved = read_json(saved_as("ours-vs-theirs"))
    assert pair | {"manifest": saved["manifest"]} == saved
    same_words(score("ours.jsonl", "theirs.jsonl").stdout)


def test_files_of_one_name_are_told_apart_by_their_folders():
    for folder in "xy":
        predictions(f"{folder}/out.jsonl", {"a": "the red cat"})
    table = score("x/out.jsonl", "y/out.jsonl").stdout
    assert "x-out" in table and "y-out" in table
    assert saved_as("x-out-vs-y-out").exists()


@pytest.mark.parametrize(
    "names",
    ["ours.jsonl theirs.jsonl", "theirs.jsonl ours.jsonl", "ours.jsonl other.jsonl"],
)
def test_files_of_other_examples_or_right_answers_are_not_compared(names):
    predictions("ours.jsonl", {"a": "x", "b": "x"})
    predictions("theirs.jsonl", {"a": "x"})
    predictions("other.jsonl", {"a": "x", "b": "x"}, target="blue")
    refused("score", *names.split())


@pytest.mark.parametrize(
    "out", ["out.jsonl", ".", "scores.csv", "weights.json", "run.json"]
)
def test_no_file_is_written_over_that_score_did_not_write(out):
    predictions("out.jsonl", {"a": "the red cat"})
    for name in ("weights.json", "run.examples.jsonl"):
        Path(name).write_text('{"weights": [1]}\n', encoding="utf-8")
    before = {path: path.read_bytes() for path in Path().iterdir()}
    refused("score", "out.jsonl", "--out", out)
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_a_device_or_a_pipe_takes_the_scores_as_they_come_and_a_link_is_followed():
    predictions("out.jsonl", {"a": "the red cat"})
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    score("out.jsonl", "--out", "pipe")
    assert json.loads(os.read(reader, 100_000))["values"]["rougeL"] == 100.0
    os.close(reader)
    score("out.jsonl", "--out", os.devnull)
    assert Path("pipe").is_fifo() and Path(os.devnull).is_char_device()
    for out in ("pipe", os.devnull):
        assert not Path(f"{out}.examples.jsonl").exists()
    Path("link.json").symlink_to("real.json")
    score("out.jsonl", "--out", "link.json")
    assert Path("link.json").is_symlink() and read_json("real.json")["values"]


def test_files_of_other_endings_do_not_share_what_stands_beside_them():
    Path("out.two.manifest.json").write_text('{"examples": 3, "settings": {}}')
    for name, expected in (("one", None), ("two", 3)):
        predictions(f"out.{name}", {"a": "the red cat"})
        rows = in_json(f"out.{name}", "--out", f"scores.{name}")["rows"]
        assert rows == {"scored": 1, "expected": expected}
        assert Path(f"scores.{name}.examples.jsonl").exists()


@pytest.mark.parametrize(
    ("manifest", "options", "protocol"),
    [
        ({}, "kp.jsonl", "chan2019"),
        ({}, "out.jsonl --protocol chan2019", "chan2019"),
        ({"task": "multispan"}, "out.jsonl", "multispanqa"),
        ({"segmentation": {"level": "phrase"}}, "out.jsonl", "chan2019"),
        ({}, "out.jsonl", "rouge"),
    ],
)
def test_the_task_follows_from_the_protocol_the_manifest_the_records_or_the_level(
    manifest, options, protocol
):
    """And the reason is told."""
    predictions("out.jsonl", {"a": "cat"}, source="a cat", target_segments=["cat"])
    predictions("kp.jsonl", {"a": "cat"}, source="a cat", keyphrases=["cat"])
    segmentation = {"level": "clause", "separators": [], "joiner": " ", "sub_max": 20}
    write_lines("pipedec-workspace/data/segmentation.json", segmentation)
    manifest_of("out.jsonl", **manifest)
    result = score(*options.split(), "--json")
    assert json.loads(result.stdout)["protocol"] == protocol
    same_words(result.stderr)


def test_keyphrases_that_were_cut_from_a_string_are_scored_and_a_string_is_refused():
    # As `segment --target-field keyphrases` takes them.
    told = dict.fromkeys(("keyphrases", "target"), "cat; dog")
    more = {"source": "a cat", **told}
    predictions("cut.jsonl", {"a": "cat"}, **more, target_segments=["cat", "dog"])
    values = in_json("cut.jsonl", "--task", "keyphrases")["values"]
    assert (values["present_f1@M"], values["absent_f1@M"]) == (100.0, 0.0)
    predictions("cut.jsonl", {"a": "cat"}, **more)
    refused("score", "cut.jsonl", "--task", "keyphrases")


@pytest.mark.parametrize(
    "manifest",
    [
        {"examples": 3},
        {"settings": {"limit": 1}},
        {"segmentation": {"level": "field"}},
        {"settings": {"limit": None}},
    ],
)
def test_a_partial_run_or_one_of_other_data_is_not_taken_for_a_whole_one(manifest):
    predictions("out.jsonl", {"a": "the red cat"})
    manifest_of("out.jsonl", **manifest)
    result = score("out.jsonl", "--quiet", "--protocol", "rouge")
    same_words(result.stderr)
    same_words(result.stdout)
    rows = read_json(saved_as("out"))["rows"]
    assert rows == {"scored": 1, "expected": manifest.get("examples")}


def test_the_scores_by_another_protocol_are_kept():
    predictions("out.jsonl", {"a": "the red cat"}, target_segments=["the red cat"])
    at_out = ("out.jsonl", "--out", "s.json")
    for _ in range(2):
        assert "warning" not in score(*at_out).stderr
    assert not list(Path().glob("*.bak"))
    files = ("s.json", "s.examples.jsonl")
    first = {name: Path(name).read_bytes() for name in files}
    same_words(score(*at_out, "--protocol", "chan2019").stderr)
    second = {name: Path(name).read_bytes() for name in files}
    score(*at_out)
    # The first ones stay.
    for name in files:
        assert Path(f"{name}.bak").read_bytes() == first[name]
        assert Path(f"{name}.bak2").read_bytes() == second[name]


def test_scores_of_files_of_one_name_and_by_other_protocols_have_files_of_their_own_in_the_workspace():
    for folder, text in (("x", "the red cat"), ("y", "a dog")):
        predictions(f"{folder}/out.jsonl", {"a": text}, target_segments=["the red cat"])
        score(f"{folder}/out.jsonl")
    score("x/out.jsonl", "--protocol", "chan2019")
    paths = sorted(SCORES.glob("out-*.json"))
    assert len(paths) == 3
    score("./x/../x/out.jsonl")  # the same file by another path
    assert sorted(SCORES.glob("out-*.json")) == paths


def test_multispanqas_own_files_are_scored_by_its_protocol():
    """1 hit of 1 prediction and 2 answers: P = 1, R = 1/2, F1 = 2/3."""
    labelled = {"context": ["a", "cat", "or", "dog"], "label": ["O", "B", "O", "B"]}
    gold = {"data": [{"id": "q", "question": ["w"], **labelled}]}
    Path("gold.json").write_text(json.dumps(gold))
    Path("answers.json").write_text(json.dumps({"q": ["the cat"]}))
    scores = in_json("answers.json", "--gold", "gold.json")
    assert scores["protocol"] == "multispanqa"
    assert scores["values"]["em_f1"] == pytest.approx(200 / 3)
    Path("c.toml").write_text('[score]\nsources = "none.txt"\n')
    for more in (
        "--sources none.txt",
        "--gold gold.json --sources none.txt",
        "--gold gold.json --config c.toml",
    ):
        assert refused("score", "answers.json", *more.split()).startswith("none.txt: ")


def test_text_is_shown_as_text_and_what_rouge_cannot_read_as_not_scorable():
    predictions("[red]\x1b[31m.jsonl", {"[bold]a": "[/bold]\x00 the red cat"})
    same_words(score("[red]\x1b[31m.jsonl").stdout)
    predictions("out.jsonl", {"a": "猫"}, target="猫")
    result = score("out.jsonl")
    same_words(result.stdout)
    same_words(result.stderr)


def test_objects_are_scored_by_their_pairs_and_by_key():
    """2 of 3 predicted and of 4 right pairs."""
    target = {"name": "A", "food": "Thai"}
    made = ({"name": "a", "food": "Greek"}, {"name": "A"})
    for name, objects in (("a.jsonl", made), ("b.jsonl", (target, target))):
        write_lines(name, *({"prediction": each, "target": target} for each in objects))
    result = score("a.jsonl")
    same_words(result.stdout)
    same_words(result.stderr)
    parts = read_json(saved_as("a"))["parts"]
    assert (parts["name"]["fields_exact"], parts["food"]["right_pairs"]) == (100.0, 2.0)
    same_words(score("a.jsonl", "b.jsonl").stdout)
