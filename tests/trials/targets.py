"""What the fuzzer hurts: small valid files of every format, the command that reads them, and what must not be lost."""

import csv
import gzip
import io
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.data.importers import published
from tests.trials import model_targets
from tests.trials.target import (
    ROWS,
    SCHEMA,
    VALUE,
    Target,
    imported,
    imported_lines,
    lines,
    scored,
    segmented,
)


def _table(rows: Iterable[Mapping[str, Any]], separator: str) -> bytes:
    text = io.StringIO()
    cells = [("id", "source", "target"), *((row["id"], row["source"], row["target"]) for row in rows)]
    csv.writer(text, delimiter=separator).writerows(cells)
    return text.getvalue().encode()


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    made = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), made)
    return made.getvalue()


def _segment_targets() -> Iterable[Target]:
    for name, content in (
        ("data.jsonl", lines(ROWS)),
        ("data.json", json.dumps(ROWS, indent=1).encode()),
        ("data.jsonl.gz", gzip.compress(lines(ROWS))),
        ("data.csv", _table(ROWS, ",")),
        ("data.tsv", _table(ROWS, "\t")),
        ("data.parquet", _parquet(ROWS)),
    ):
        words = ("segment", name, "--level", "phrase", "--out", "out", "--json")
        yield Target(words, {name: content}, (name,), segmented(name), share=4 if name == "data.jsonl" else 2)
    words = ("segment", "-", "--level", "phrase", "--out", "out", "--json")
    yield Target(words, {"stdin.jsonl": lines(ROWS)}, ("stdin.jsonl",), segmented("stdin.jsonl"))
    sources = {"data.jsonl": lines({"id": row["id"], "source": row["source"]} for row in ROWS)}
    words = ("segment", "data.jsonl", "--sources-only", "--out", "out", "--json")
    yield Target(words, sources, ("data.jsonl",), segmented("data.jsonl"))
    config = b'level = "clause"\nseed = 3\n[segment]\nheld-out = 0.2\nsub_max = 5\nlimit = 9\n'
    words = ("segment", "data.jsonl", "--config", "c.toml", "--out", "out")
    yield Target(words, {"data.jsonl": lines(ROWS), "c.toml": config}, ("c.toml",), share=3)
    recipe = (
        b'recipe = "cnn_dailymail"\n[generate]\ndelay = 2\n[segment]\nlevel = "phrase"\nseparator = ";"\n'
    )
    yield Target(words, {"data.jsonl": lines(ROWS), "c.toml": recipe}, ("c.toml",))
    files = {f"set/{name}.jsonl": lines(ROWS[:4]) for name in ("train", "dev", "test")}
    yield Target(("segment", "set", "--out", "out"), files, tuple(files))
    objects = [
        {"source": f"case {n}", "target": {"name": f"n {n}", "stars": n, "tags": ["a", "b"]} | more}
        for n, more in enumerate([{"place": {"city": "Rome"}}, {"place": {}}, {}] * 3)
    ]
    files = {"data.jsonl": lines(objects), "s.json": json.dumps(SCHEMA, indent=1).encode()}
    words = ("segment", "data.jsonl", "--level", "field", "--out", "out", "--json")
    yield Target(words, files, ("data.jsonl",), segmented("data.jsonl"), share=3)
    yield Target((*words, "--schema", "s.json"), files, ("s.json",), share=2)


def _import_targets() -> Iterable[Target]:
    for name, write in published.WRITERS.items():
        with TemporaryDirectory() as folder:
            write(Path(folder))
            files = {f"set/{path.name}": path.read_bytes() for path in Path(folder).iterdir()}
        count = imported_lines if name in ("kp20k", "kptimes", "pubmed") else imported
        yield Target(("import", name, "set", "--out", "out", "--json"), files, tuple(files), count, share=2)
    rows = lines({"title": "A b", "abstract": "c d", "keyphrases": [["a", "b"], ["c"]]} for _ in range(4))
    yield Target(("import", "keyphrases", "k.json", "--out", "o"), {"k.json": rows}, ("k.json",))
    story = b"It rained.\n\nAnn got wet.\n\n@highlight\n\nIt rained\n\n@highlight\n\nAnn got wet\n"
    yield Target(("import", "cnn_dailymail", "s", "--out", "o"), {"s/1.story": story}, ("s/1.story",))
    tagged = {"a.conll": b"-DOCSTART- O\n\nAnn NNP B-PER\nLee NNP I-PER\nof x O\n\nRome\tU-LOC\n"}
    yield Target(("import", "conll", "a.conll", "--out", "o"), tagged, ("a.conll",))
    texts = {"a_src.txt": b"one text\nanother <eos> text\n", "a_trg.txt": b"a;b\nc;<peos>;d\n"}
    yield Target(("import", "parallel", "a_src.txt", "--out", "o"), texts, tuple(texts))


def _score_targets() -> Iterable[Target]:
    made = {"steps": 3, "tokens": 9, "truncated": None, "seconds": 0.1}
    made |= {"grid": [{"start": 1, "tokens": [4, 1]}], "source_token_ids": [3]}
    predictions = [
        {"id": row["id"], "prediction": row["target"], "segments": row["keyphrases"], **made}
        | {name: row[name] for name in ("source", "target", "keyphrases")}
        for row in ROWS
    ]
    segmentation = {"level": "sentence", "separators": [], "joiner": " ", "sub_max": 20}
    manifest = {"examples": 12, "settings": {"delay": 2, "limit": 12}, "segmentation": segmentation}
    manifest |= {"inputs": [], "model": {"name": "m", "sha256": "0"}, "data": {"name": "d", "sha256": "1"}}
    manifest |= {"versions": {"pipedec": "0.1.0", "torch": None}}
    files = {"p.jsonl": lines(predictions), "p.manifest.json": json.dumps(manifest, indent=2).encode()}
    yield Target(("score", "p.jsonl", "--json"), files, ("p.jsonl",), scored, share=4)
    yield Target(("score", "p.jsonl"), files, ("p.manifest.json",), share=3)
    keyphrases = ("score", "p.jsonl", "--task", "keyphrases", "--json")
    yield Target(keyphrases, files, ("p.jsonl",), scored, share=2)
    yield Target(("score", "p.jsonl", "p.jsonl"), files, ("p.jsonl",))
    objects = {"name": "Ann", "stars": 2.5, "tags": ["a", "b"], "open": None}
    rows = lines({"id": n, "prediction": "{}", "fields": objects, "target": objects} for n in range(4))
    yield Target(("score", "p.jsonl", "--json"), {"p.jsonl": rows}, ("p.jsonl",), share=2)
    guessed = lines({"id": row["id"], "prediction": "a"} for row in ROWS)
    gold = {"p.jsonl": guessed, "g.jsonl": lines(ROWS)}
    yield Target(("score", "p.jsonl", "--gold", "g.jsonl"), gold, tuple(gold), share=3)
    asked = published.questions_file(published.question(), published.question(id="q2"))
    answers = {"a.json": b'{"q1": ["Ann", "Bo"], "q2": []}', "g.json": json.dumps(asked).encode()}
    yield Target(("score", "a.json", "--gold", "g.json"), answers, tuple(answers), share=4)
    texts = {"p.txt": b"a;b\nc\n", "g.txt": b"a;b\nc;d\n", "s.txt": b"a b c\nc and e\n"}
    words = ("score", "p.txt", "--gold", "g.txt", "--sources", "s.txt")
    yield Target(words, texts, tuple(texts), share=2)


def _value_targets() -> Iterable[Target]:
    for words, value in (
        (("generate", "--text", "a", "--delay"), "2"),
        (("generate", "--text", "a", "--batch-size"), "auto"),
        (("generate", "--text", "a", "--device"), "cuda:0"),
        (("report", "--delays"), "1,2,3"),
        (("bench", "--model", "none", "--batch-sizes"), "1,4,8"),
        (("bench", "--model", "none", "--compare"), "sequential,transformers"),
        (("train", "--epochs"), "1.5"),
        (("train", "--delay"), "any"),
        (("segment", "none.jsonl", "--level"), "phrase"),
        (("segment",), "none.jsonl"),
        (("score",), "none.jsonl"),
        (("import", "kp20k"), "none.json"),
        (("recipes",), "msqa"),
        (("segment", "none.jsonl", "--config"), "none.toml"),
        ((), "segment"),
    ):
        yield Target((*words, VALUE), {VALUE: value.encode()}, (VALUE,))


@cache
def targets() -> tuple[Target, ...]:
    """All of them, each as often as its share says."""
    kinds = (_segment_targets, _import_targets, _score_targets, _value_targets, *model_targets.KINDS)
    found = (target for kind in kinds for target in kind())
    return tuple(target for target in found for _ in range(target.share))
