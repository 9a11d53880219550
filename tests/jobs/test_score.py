"""`pipedec score` as it is typed: tables on stdout, talk on stderr, files that are saved, mistakes in one line."""

import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.running import lines_of, read_json, refused, run, write_lines

pytestmark = pytest.mark.usefixtures("empty_folder")


def predictions(path: str, texts: dict[str, str], **more: Any) -> None:
    more = {"source": "s", "target": "the red cat", **more}
    rows = (
        {"id": key, "prediction": text, "segments": [text], **more}
        for key, text in texts.items()
    )
    write_lines(path, *rows)


score = partial(run, "score")
SCORES = Path("pipedec-workspace/scores")


def saved_as(name: str, ending: str = ".json") -> Path:
    """The file of that name and a hash in the workspace."""
    (path,) = SCORES.glob(f"{name}-{'[0-9a-f]' * 8}{ending}")
    return path


def test_a_table_and_the_signature_go_to_stdout_talk_to_stderr_and_scores_to_the_workspace():
    predictions("out.jsonl", {"a": "the red cat", "b": "a dog"})
    result = score("out.jsonl")
    for shown in (
        "ROUGE-1     50.00",
        "signature: rouge|score:f1|stem:yes|",
        "out: 2 rows",
    ):
        assert shown in result.stdout
    assert "task: summarization, since nothing says otherwise" in result.stderr
    assert "saved" not in result.stdout
    saved = read_json(saved_as("out"))
    assert saved["values"]["rouge1"] == 50.0
    assert saved["signature"].startswith("rouge|")
    assert saved["rows"] == {"scored": 2, "expected": None}
    assert saved["failures"]["duplicated_rate"] == 0.0
    settings, (read,) = saved["manifest"]["settings"], saved["manifest"]["inputs"]
    assert settings["protocol"] == "rouge"
    assert (read["path"], len(read["sha256"])) == ("out.jsonl", 64)
    examples = lines_of(saved_as("out", ".examples.jsonl"))
    assert [(row["id"], row["rouge1"]) for row in examples] == [
        ("a", 100.0),
        ("b", 0.0),
    ]
    # with --json, what is saved is all there is on stdout
    shutil.rmtree("pipedec-workspace")
    result = score("out.jsonl", "--json", "--quiet", "--out", "here/scores.json")
    saved = read_json("here/scores.json")
    assert json.loads(result.stdout) | {"manifest": saved["manifest"]} == saved
    assert result.stderr == ""
    assert (
        Path("here/scores.examples.jsonl").exists()
        and not Path("pipedec-workspace").exists()
    )


def test_objects_with_confidences_are_told_by_how_sure_they_were():
    sure = [({"a": n / 10}, {"a": "xy"[n < 5]}) for n in range(10)]
    rows = [
        {"prediction": {"a": "x"}, "confidence": one, "target": right}
        for one, right in sure
    ]
    write_lines("sure.jsonl", *rows)
    shown = " ".join(score("sure.jsonl").stdout.split())
    assert "0.4 to 0.5 1 40.0 0.0 0.5 to 0.6 1 50.0 100.0" in shown
    assert "area under the ROC curve: 1.000" in shown
    assert (
        "at least 0.5 sure, which keeps 95 % right: 5 of 10 values, 100.0 % right"
        in shown
    )
    found = json.loads(score("sure.jsonl", "--json").stdout)["reliability"]
    assert (found["auc"], found["threshold"]) == (1.0, 0.5)
    write_lines("wrong.jsonl", *({**row, "confidence": {"b": [1]}} for row in rows))
    assert "reliability" not in json.loads(score("wrong.jsonl", "--json").stdout)
    write_lines("never.jsonl", *({**row, "target": {"a": "z"}} for row in rows))
    assert "no threshold keeps 95 % right values" in score("never.jsonl").stdout


def test_values_are_compared_as_the_schema_says_or_the_user():
    write_lines(
        "out.jsonl",
        {
            "source": "s",
            "prediction": {"a": "the mill", "b": 3},
            "target": {"a": "mill", "b": 3.1},
        },
    )
    fields = [
        {"name": "a", "keywords": [["x-metric", "words"]]},
        {"name": "b", "keywords": [["x-metric", 0.2]]},
    ]
    Path("out.manifest.json").write_text(
        json.dumps({"segmentation": {"fields": fields}})
    )
    for more, signed, f1 in (
        ((), "a:words|b:0.2", 250 / 3),
        (("--set", "metrics=b 2%"), "a:words|b:2%", 100 / 3),
        (("--set", "metrics=b 4%, a exact"), "a:exact|b:4%", 50),
    ):
        found = json.loads(score("out.jsonl", "--json", *more).stdout)
        assert f"|avg:micro|{signed}|" in found["signature"]
        assert found["values"]["fields_f1"] == pytest.approx(f1)
    assert (
        "KEY exact, KEY words, or a tolerance"
        in score("out.jsonl", "--set", "metrics=a x", exit_code=2).stderr
    )
    told = refused("score", "out.jsonl", "--set", "metrics=aa words")
    assert "metrics has the key 'aa', which no object has; write a" in told
    fields[0]["keywords"] = [["x-metric", "mostly"]]
    Path("out.manifest.json").write_text(
        json.dumps({"segmentation": {"fields": fields}})
    )
    assert "the schema has an x-metric that is none: a mostly" in refused(
        "score", "out.jsonl"
    )


def test_keys_that_no_prediction_has_are_named_since_they_count_as_dropped():
    write_lines(
        "out.jsonl",
        {"source": "s", "prediction": {"a": "x"}, "target": {"a": "x", "b": "y"}},
    )
    assert "no prediction has a value for b: a key" in score("out.jsonl").stderr


def test_without_a_file_the_workspaces_newest_predictions_are_scored():
    assert "run `pipedec generate` first" in refused("score")
    predictions("pipedec-workspace/generations/old.jsonl", {"a": "x"})
    predictions("pipedec-workspace/generations/new.jsonl", {"a": "the red cat"})
    teachers = "pipedec-workspace/generations/sequential-train-0123abcd.jsonl"
    # what a teacher has written since for the training data is no test
    predictions(teachers, {"a": "y"})
    os.utime(teachers, (2e9, 2e9))
    os.utime("pipedec-workspace/generations/old.jsonl", (1, 1))
    # nor is a list of what was set aside
    Path("pipedec-workspace/generations/new.invalid.jsonl").write_text(
        '{"where": "x:1", "what": "wrong"}\n'
    )
    result = score()
    assert "new.jsonl, the newest of the workspace" in result.stderr
    assert "100.00" in result.stdout


def test_two_files_are_compared_with_a_paired_interval_or_refused_and_never_written_over():
    predictions("ours.jsonl", {"a": "the red cat", "b": "the red cat", "c": "the cat"})
    predictions("theirs.jsonl", {"c": "the cat", "b": "a dog", "a": "the red cat"})
    pair = json.loads(score("ours.jsonl", "theirs.jsonl", "--json").stdout)
    assert pair["differences"]["rouge1"]["value"] == pytest.approx(100 / 3)
    assert (pair["differences"]["rouge1"]["low"], pair["identical_predictions"]) == (
        0.0,
        2,
    )
    assert "scipy.stats.bootstrap" in pair["method"]
    saved = read_json(saved_as("ours-vs-theirs"))
    assert pair | {"manifest": saved["manifest"]} == saved
    table, what = (
        score("ours.jsonl", "theirs.jsonl").stdout,
        "paired bootstrap, percentile interval at 95%",
    )
    for shown in (
        "+33.33",
        f"difference: first minus second; {what}",
        "the same prediction in both: 2 of 3",
    ):
        assert shown in table
    # files of one name are told apart by their folders
    for folder in "xy":
        predictions(f"{folder}/out.jsonl", {"a": "the red cat"})
    table = score("x/out.jsonl", "y/out.jsonl").stdout
    assert "x-out" in table and "y-out" in table
    assert saved_as("x-out-vs-y-out").exists()
    predictions("ours.jsonl", {"a": "x", "b": "x"})
    predictions("theirs.jsonl", {"a": "x"})
    predictions("other.jsonl", {"a": "x", "b": "x"}, target="blue")
    lacking = "id 'b' of ours.jsonl is not in theirs.jsonl"
    for first, second, wrong in (
        ("ours.jsonl", "theirs.jsonl", lacking),
        ("theirs.jsonl", "ours.jsonl", lacking),
        ("ours.jsonl", "other.jsonl", "id 'a' has other right answers"),
    ):
        assert wrong in refused("score", first, second)
    before = Path("ours.jsonl").read_bytes()
    assert "would be written over" in refused(
        "score", "ours.jsonl", "--out", "ours.jsonl"
    )
    assert "is a folder; name a file in it" in refused(
        "score", "ours.jsonl", "--out", "."
    )
    assert Path("ours.jsonl").read_bytes() == before


def test_a_device_or_a_pipe_takes_the_scores_as_they_come_and_a_link_is_followed():
    predictions("out.jsonl", {"a": "the red cat"})
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    score("out.jsonl", "--out", "pipe")
    assert json.loads(os.read(reader, 100_000))["values"]["rougeL"] == 100.0
    os.close(reader)
    score("out.jsonl", "--out", os.devnull)
    assert Path("pipe").is_fifo() and Path(os.devnull).is_char_device()
    assert (
        not Path("pipe.examples.jsonl").exists()
        and not Path(f"{os.devnull}.examples.jsonl").exists()
    )
    Path("link.json").symlink_to("real.json")
    score("out.jsonl", "--out", "link.json")
    assert (
        Path("link.json").is_symlink()
        and json.loads(Path("real.json").read_text())["values"]
    )


def test_files_of_other_endings_do_not_share_what_stands_beside_them():
    Path("out.two.manifest.json").write_text('{"examples": 3, "settings": {}}')
    for name, expected in (("one", None), ("two", 3)):
        predictions(f"out.{name}", {"a": "the red cat"})
        shown = score(f"out.{name}", "--json", "--out", f"scores.{name}").stdout
        assert json.loads(shown)["rows"] == {"scored": 1, "expected": expected}
    assert (
        Path("scores.one.examples.jsonl").exists()
        and Path("scores.two.examples.jsonl").exists()
    )


def test_the_task_follows_from_the_protocol_the_manifest_the_records_or_the_level():
    predictions("out.jsonl", {"a": "cat"}, source="a cat", target_segments=["cat"])
    predictions("kp.jsonl", {"a": "cat"}, source="a cat", keyphrases=["cat"])
    assert "chan2019|" in score("out.jsonl", "--protocol", "chan2019").stdout
    assert "since the records have a list `keyphrases`" in score("kp.jsonl").stderr
    # As `segment --target-field keyphrases` takes them.
    told = dict.fromkeys(("keyphrases", "target"), "cat; dog")
    predictions(
        "cut.jsonl",
        {"a": "cat"},
        source="a cat",
        **told,
        target_segments=["cat", "dog"],
    )
    scores = json.loads(score("cut.jsonl", "--task", "keyphrases", "--json").stdout)[
        "values"
    ]
    assert (scores["present_f1@M"], scores["absent_f1@M"]) == (100.0, 0.0)
    predictions("cut.jsonl", {"a": "cat"}, source="a cat", **told)
    said = refused("score", "cut.jsonl", "--task", "keyphrases")
    assert "must be a list of strings, not the string 'cat; dog'" in said
    segmentation = {"level": "clause", "separators": [], "joiner": " ", "sub_max": 20}
    write_lines("pipedec-workspace/data/segmentation.json", segmentation)
    segmented = "data were segmented at level"
    for manifest, task, why in (
        ('{"task": "multispan"}', "multispan", "the run's manifest says so"),
        (
            '{"segmentation": {"level": "phrase"}}',
            "keyphrases",
            f"the run's {segmented} phrase",
        ),
        ("{}", "summarization", "the workspace's data are segmented at level clause"),
    ):
        Path("out.manifest.json").write_text(manifest)
        assert f"task: {task}, since {why}" in score("out.jsonl").stderr


def test_a_partial_run_and_one_of_a_few_examples_are_not_taken_for_whole_ones():
    predictions("out.jsonl", {"a": "the red cat"})
    Path("out.manifest.json").write_text('{"examples": 3}')
    result = score("out.jsonl", "--quiet")
    assert "out: 1 of 3 rows" in result.stdout
    assert "warning: out: 1 of 3 rows are there and were scored" in result.stderr
    assert read_json(saved_as("out"))["rows"]["expected"] == 3
    Path("out.manifest.json").write_text('{"settings": {"limit": 1}}')
    assert (
        "warning: out: a run of the first 1 example only, made with --limit"
        in score("out.jsonl").stderr
    )
    Path("out.manifest.json").write_text('{"settings": {"limit": null}}')
    assert "--limit" not in score("out.jsonl").stderr


def test_a_protocol_for_other_data_is_pointed_out_and_the_scores_by_another_are_kept():
    predictions("out.jsonl", {"a": "the red cat"}, target_segments=["the red cat"])
    Path("out.manifest.json").write_text('{"segmentation": {"level": "sentence"}}')
    at_out = ("out.jsonl", "--out", "s.json")
    assert "warning" not in score(*at_out).stderr + score(*at_out).stderr and not list(
        Path().glob("*.bak")
    )
    files = ("s.json", "s.examples.jsonl")
    first = {name: Path(name).read_bytes() for name in files}
    result = score(*at_out, "--protocol", "chan2019")
    assert (
        "out: scored as keyphrases, but the data are segmented at level sentence"
        in result.stderr
    )
    assert "s.json was not of this protocol: it is kept as s.json.bak" in " ".join(
        result.stderr.split()
    )
    second = {name: Path(name).read_bytes() for name in files}
    score(*at_out)
    assert {name: Path(f"{name}.bak").read_bytes() for name in files} == first
    assert {name: Path(f"{name}.bak2").read_bytes() for name in files} == second, (
        "the first ones stay"
    )


def test_scores_of_files_of_one_name_and_by_other_protocols_have_files_of_their_own_in_the_workspace():
    for folder, text in (("x", "the red cat"), ("y", "a dog")):
        predictions(f"{folder}/out.jsonl", {"a": text}, target_segments=["the red cat"])
        score(f"{folder}/out.jsonl")
    score("x/out.jsonl", "--protocol", "chan2019")
    paths = sorted(SCORES.glob("out-*.json"))
    told = {(one["predictions"], one["protocol"]) for one in map(read_json, paths)}
    assert told == {
        ("x/out.jsonl", "rouge"),
        ("y/out.jsonl", "rouge"),
        ("x/out.jsonl", "chan2019"),
    }
    score("./x/../x/out.jsonl")
    assert sorted(SCORES.glob("out-*.json")) == paths, "the same file by another path"


@pytest.mark.parametrize("name", ["weights.json", "weights.examples.jsonl"])
def test_no_file_is_written_over_or_moved_that_score_did_not_write(name):
    predictions("out.jsonl", {"a": "the red cat"})
    Path(name).write_text('{"weights": [1]}\n', encoding="utf-8")
    assert refused("score", "out.jsonl", "--out", "weights.json").startswith(
        f"{name}: was not written by"
    )
    assert [path.name for path in Path().glob("weights*")] == [name]
    assert Path(name).read_text(encoding="utf-8") == '{"weights": [1]}\n'


def test_scores_are_not_written_under_the_name_of_a_table():
    predictions("out.jsonl", {"a": "the red cat"})
    assert refused("score", "out.jsonl", "--out", "scores.csv").startswith(
        "scores.csv: JSON is written"
    )


def test_multispanqas_own_files_are_scored_by_its_protocol():
    labelled = {"context": ["a", "cat", "or", "dog"], "label": ["O", "B", "O", "B"]}
    Path("gold.json").write_text(
        json.dumps({"data": [{"id": "q", "question": ["w"], **labelled}]})
    )
    Path("answers.json").write_text(json.dumps({"q": ["the cat"]}))
    result = score("answers.json", "--gold", "gold.json")
    assert "multispanqa|norm:squad|avg:micro|autojunk:yes" in result.stdout
    # 1 hit of 1 prediction and 2 answers: P = 1, R = 1/2, F1 = 2/3
    assert "exact match F1    66.67  100.00  50.00" in result.stdout
    for gold in ((), ("--gold", "gold.json")):
        told = refused("score", "answers.json", *gold, "--sources", "none.txt")
        assert told.startswith(
            "none.txt: sources go with right answers in lines, and there are none"
        )
    Path("c.toml").write_text('[score]\nsources = "none.txt"\n')
    assert "sources go with" in refused(
        "score", "answers.json", "--gold", "gold.json", "--config", "c.toml"
    )


def test_text_is_shown_as_text_and_what_rouge_cannot_read_as_not_scorable():
    predictions("[red]\x1b[31m.jsonl", {"[bold]a": "[/bold]\x00 the red cat"})
    result = score("[red]\x1b[31m.jsonl")
    assert "[red]␛[31m" in result.stdout and "\x1b" not in result.stdout
    predictions("out.jsonl", {"a": "猫"}, target="猫")
    result = score("out.jsonl")
    assert "ROUGE-1     not scorable" in result.stdout
    assert "1 of 1 examples are not scorable" in result.stderr


def test_objects_are_scored_by_their_pairs_and_by_key():
    target = {"name": "A", "food": "Thai"}
    made = ({"name": "a", "food": "Greek"}, {"name": "A"})
    write_lines(
        "a.jsonl",
        *({"id": i, "prediction": one, "target": target} for i, one in enumerate(made)),
    )
    result = score("a.jsonl")
    assert "task: fields, since the targets are objects" in result.stderr
    assert (
        "fields F1      57.14  66.67  50.00" in result.stdout
    )  # 2 of 3 predicted and of 4 right pairs
    rows = [
        line.split()
        for line in result.stdout.splitlines()
        if line.startswith(("name", "food"))
    ]
    assert rows == [
        ["food", *["0.00", "0.00", "0.00", "0.00", "2"]],
        ["name", *["100.00"] * 4, "2"],
    ]
    parts = read_json(saved_as("a"))["parts"]
    assert (parts["name"]["fields_exact"], parts["food"]["right_pairs"]) == (100.0, 2.0)
    write_lines(
        "b.jsonl", *({"id": i, "prediction": target, "target": target} for i in (0, 1))
    )
    shown = score("a.jsonl", "b.jsonl").stdout
    assert "food 0.00 100.00 2" in [
        " ".join(line.split()) for line in shown.splitlines()
    ]
    write_lines("c.jsonl", {"prediction": "x", "target": "y"})
    said = refused("score", "c.jsonl", "--task", "fields")
    assert (
        "nothing to score against: the record has no `target` that is an object" in said
    )
