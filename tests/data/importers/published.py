"""The paper's six data sets, small, with the file names and the layouts that they are published in.

Each writer makes the files of one data set in a folder, as a user has it after
downloading: `NUMBERS` says how many examples, each with a source of its own and, in
turns, two or three subsequences a target.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

TEST = 4
#: A number for each example of a split, none of them in another split.
NUMBERS: Final = {"train": range(8), "dev": range(8, 12), "test": range(12, 12 + TEST)}

_NAMES: Final = ("Ann", "Bo", "Cy", "Dee", "Eve", "Flo", "Gus")
_THINGS: Final = ("grid", "time step", "token", "mask", "delay")


def _write(
    folder: Path, names: str, line: Callable[[int], str | Mapping[str, Any]]
) -> None:
    """Write the files of train, dev and test: a line for each number, or several with a line feed between them."""
    for name, numbers in zip(names.split(), NUMBERS.values(), strict=True):
        lines = (
            made if isinstance(made, str) else json.dumps(made)
            for made in map(line, numbers)
        )
        (folder / name).write_text(
            "".join(f"{line}\n" for line in lines), encoding="utf-8"
        )


def msqa(folder: Path) -> None:
    """MultiSpanQA: a JSON object a file; the test split has no labels."""
    for split, name in (("train", "train"), ("dev", "valid"), ("test", "test")):
        questions = []
        for number in NUMBERS[split]:
            people = _pick(_NAMES, number)
            tokens = [*" and ".join(people).split(), "met", "in", f"room{number}", "."]
            tags = ["B" if token in people else "O" for token in tokens]
            entry = question(
                id=f"q{number}", context=tokens, label=tags, num_span=len(people)
            )
            unlabelled = {key: entry[key] for key in ("id", "question", "context")}
            questions.append(unlabelled if split == "test" else entry)
        (folder / f"{name}.json").write_text(
            json.dumps(questions_file(*questions)), encoding="utf-8"
        )


def question(**changes: Any) -> dict[str, Any]:
    """A question of MultiSpanQA; a change to ``...`` takes the field away."""
    entry = {
        "id": "q1",
        "type": "ENTY",
        "question": ["who", "met"],
        "context": ["The", "well", "-", "known", "Ann", "met", "Bo", "."],
        "num_span": 3,
        "label": ["O", "B", "I", "I", "B", "O", "B", "O"],
        "structure": "Conjunction",
    }
    return {
        name: value for name, value in (entry | changes).items() if value is not ...
    }


def questions_file(*questions: Mapping[str, Any]) -> dict[str, Any]:
    """What a file of MultiSpanQA holds."""
    return {"version": 1.0, "data": list(questions)}


def kp20k(folder: Path) -> None:
    """KP20k: JSON lines, the phrases one string with ``;`` between them."""
    names = "kp20k_training.json kp20k_validation.json kp20k_testing.json"
    _write(
        folder,
        names,
        lambda number: document(number) | {"keyword": ";".join(_pick(_THINGS, number))},
    )


def kptimes(folder: Path) -> None:
    """KPTimes, the copy with lists: JSON lines."""

    def row(number: int) -> Mapping[str, Any]:
        return {
            "id": f"nyt{number}",
            **document(number),
            "keyphrases": _pick(_THINGS, number),
            "prmu": "P",
        }

    _write(folder, "train.jsonl dev.jsonl test.jsonl", row)


def document(number: int) -> dict[str, str]:
    """Title and body, in which the first of its phrases stands and the others do not."""
    body = f"We draw a {_pick(_THINGS, number)[0]}, the {number}th."
    return {"title": f"On part {number}", "abstract": body}


def wikihowqa(folder: Path) -> None:
    """WikiHowQA: tab-separated pairs a split, and the answers with their summaries in one file for all of them."""
    summaries = []

    def pairs(number: int) -> str:
        steps = " ".join(
            f"{verb} the {number}th pan ."
            for verb in _pick(("take", "boil", "dry"), number)
        )
        summaries.append(
            f"{number}\tfirst you look for a pan . then {steps}\t{steps}\n"
        )
        return f"how to cook {number}\t{number}\t1\nhow to fly {number}\t{number}\t0"

    _write(folder, "train.txt valid.txt test.txt", pairs)
    (folder / "summary.txt").write_text("".join(summaries), encoding="utf-8")


def cnn_dailymail(folder: Path) -> None:
    """CNN/DailyMail: parquet files of the hub's layout, a highlight a line."""
    import pyarrow
    from pyarrow import parquet

    for split, name in (("train", "train"), ("dev", "validation"), ("test", "test")):
        rows = []
        for number in NUMBERS[split]:
            article = (
                f"(CNN) -- It rained on day {number}. {_NAMES[number % 7]} got wet."
            )
            wet = "\n".join(
                f"{person} got wet on day {number} ."
                for person in _pick(_NAMES, number)
            )
            rows.append({"article": article, "highlights": wet, "id": f"{number:040x}"})
        parquet.write_table(
            pyarrow.Table.from_pylist(rows), folder / f"{name}-00000-of-00001.parquet"
        )


def pubmed(folder: Path) -> None:
    """PubMed: JSON lines, each sentence of an abstract between marks."""

    def row(number: int) -> Mapping[str, Any]:
        sentences = [f"we gave {number} mg .", "it helped ."]
        abstract = [
            f"<S> {thing} {number} helped . </S>" for thing in _pick(_THINGS, number)
        ]
        made = {
            "article_id": f"PMC{number}",
            "article_text": sentences,
            "abstract_text": abstract,
        }
        return {
            **made,
            "labels": None,
            "section_names": ["intro"],
            "sections": [sentences],
        }

    _write(folder, "train.txt val.txt test.txt", row)


#: What writes each data set, by its name.
WRITERS: Final[Mapping[str, Callable[[Path], None]]] = {
    writer.__name__: writer
    for writer in (msqa, kp20k, kptimes, wikihowqa, cnn_dailymail, pubmed)
}


def _pick(words: Sequence[str], number: int) -> list[str]:
    """Two of the words, or three where the number is odd, beginning somewhere else for each number."""
    return [words[(number + place) % len(words)] for place in range(2 + number % 2)]
