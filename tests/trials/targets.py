"""What the fuzzer hurts: small valid files of every format, the command that reads them, and what must not be lost."""

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipedec_cli.data.trained import ADAPTER
from pipedec_cli.model.checkpoint import load_checkpoint, save_checkpoint
from pipedec_cli.model.training import lora
from tests.checkpoints import TOLD, change, tiny_checkpoint
from tests.data.importers import published
from tests.running import run
from tests.trials.counting import (
    Count,
    generated,
    generated_of_text,
    generated_or_set_aside,
    imported,
    imported_lines,
    merged,
    scored,
    segmented,
)


@dataclass(frozen=True, eq=False)
class Target:
    """A command line, the files that it finds, those of them that are hurt, and how often it is drawn."""

    arguments: tuple[str, ...]
    files: Mapping[str, bytes]
    hurt: tuple[str, ...]  # names, or ends of names; the content of VALUE stands in the command line
    counted: Count | None = None
    share: int = 1

    @property
    def name(self) -> str:
        return f"{' '.join(self.arguments[:2])} ({', '.join(self.hurt)})"


VALUE = "VALUE"  # the name of a file whose content stands in the command line
_ROWS: list[dict[str, Any]] = [
    {
        "id": str(n),
        "source": source,
        "target": " ".join(told),
        "keyphrases": list(told),
        "more": {"a": [None]},
    }
    for n, (source, told) in enumerate(TOLD * 2)
]


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _table(rows: Iterable[Mapping[str, Any]], separator: str) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator)
    writer.writerows(
        [("id", "source", "target"), *((row["id"], row["source"], row["target"]) for row in rows)]
    )
    return text.getvalue().encode()


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    made = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), made)
    return made.getvalue()


# ---- the targets ----------------------------------------------------------------------------------------------------


def _segment_targets() -> Iterable[Target]:
    for name, content in (
        ("data.jsonl", _lines(_ROWS)),
        ("data.json", json.dumps(_ROWS, indent=1).encode()),
        ("data.jsonl.gz", gzip.compress(_lines(_ROWS))),
        ("data.csv", _table(_ROWS, ",")),
        ("data.tsv", _table(_ROWS, "\t")),
        ("data.parquet", _parquet(_ROWS)),
    ):
        words = ("segment", name, "--level", "phrase", "--out", "out", "--json")
        yield Target(words, {name: content}, (name,), segmented(name), share=4 if name == "data.jsonl" else 2)
    words = ("segment", "-", "--level", "phrase", "--out", "out", "--json")
    yield Target(words, {"stdin.jsonl": _lines(_ROWS)}, ("stdin.jsonl",), segmented("stdin.jsonl"))
    sources = {"data.jsonl": _lines({"id": row["id"], "source": row["source"]} for row in _ROWS)}
    words = ("segment", "data.jsonl", "--sources-only", "--out", "out", "--json")
    yield Target(words, sources, ("data.jsonl",), segmented("data.jsonl"))
    config = b'level = "clause"\nseed = 3\n[segment]\ndev-fraction = 0.2\nsub_max = 5\nsplit-long = true\nlimit = 9\n'
    words = ("segment", "data.jsonl", "--config", "c.toml", "--out", "out")
    yield Target(words, {"data.jsonl": _lines(_ROWS), "c.toml": config}, ("c.toml",), share=3)
    recipe = b'recipe = "cnn_dailymail"\n[generate]\ndelay = 2\n[segment]\nlevel = "phrase"\nseparator = [";"]\njoiner = " "\n'
    yield Target(words, {"data.jsonl": _lines(_ROWS), "c.toml": recipe}, ("c.toml",))
    files = {f"set/{name}.jsonl": _lines(_ROWS[:4]) for name in ("train", "dev", "test")}
    yield Target(("segment", "set", "--out", "out"), files, tuple(files))
    objects = [
        {"source": f"case {n}", "target": {"name": f"n {n}", "stars": n, "tags": ["a", "b"]}}
        for n in range(9)
    ]
    schema = {
        "properties": {
            "name": {"type": ["string", "null"]},
            "stars": {"$ref": "#/$defs/S"},
            "tags": {"type": "array"},
        }
    }
    files = {
        "data.jsonl": _lines(objects),
        "s.json": json.dumps(schema | {"$defs": {"S": {"enum": list(range(9))}}}, indent=1).encode(),
    }
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
    rows = _lines({"title": "A b", "abstract": "c d", "keyphrases": [["a", "b"], ["c"]]} for _ in range(4))
    yield Target(("import", "keyphrases", "k.json", "--out", "o"), {"k.json": rows}, ("k.json",))
    story = b"It rained.\n\nAnn got wet.\n\n@highlight\n\nIt rained\n\n@highlight\n\nAnn got wet\n"
    yield Target(("import", "cnn_dailymail", "s", "--out", "o"), {"s/1.story": story}, ("s/1.story",))
    tagged = {"a.conll": b"-DOCSTART- O\n\nAnn NNP B-PER\nLee NNP I-PER\nof x O\n\nRome\tU-LOC\n"}
    yield Target(("import", "conll", "a.conll", "--out", "o"), tagged, ("a.conll",))
    texts = {"a_src.txt": b"one text\nanother <eos> text\n", "a_trg.txt": b"a;b\nc;<peos>;d\n"}
    yield Target(("import", "parallel", "a_src.txt", "--out", "o"), texts, tuple(texts))


def _score_targets() -> Iterable[Target]:
    predictions = [
        {
            "id": row["id"],
            "prediction": row["target"],
            "segments": row["keyphrases"],
            "steps": 3,
            "tokens": 9,
            "truncated": None,
            "seconds": 0.1,
            "grid": [{"start": 1, "tokens": [4, 1]}],
            "source_token_ids": [3],
            **{name: row[name] for name in ("source", "target", "keyphrases")},
        }
        for row in _ROWS
    ]
    made = {
        "examples": 12,
        "model": {"name": "m", "sha256": "0"},
        "data": {"name": "d", "sha256": "1"},
        "segmentation": {"level": "sentence", "separators": [], "joiner": " ", "sub_max": 20},
        "versions": {"pipedec": "0.1.0", "torch": None},
        "settings": {"delay": 2, "limit": 12},
        "inputs": [],
    }
    files = {"p.jsonl": _lines(predictions), "p.manifest.json": json.dumps(made, indent=2).encode()}
    yield Target(("score", "p.jsonl", "--json"), files, ("p.jsonl",), scored, share=4)
    yield Target(("score", "p.jsonl"), files, ("p.manifest.json",), share=3)
    keyphrases = ("score", "p.jsonl", "--task", "keyphrases", "--json")
    yield Target(keyphrases, files, ("p.jsonl",), scored, share=2)
    yield Target(("score", "p.jsonl", "p.jsonl", "--set", "resamples=99"), files, ("p.jsonl",))
    objects = {"name": "Ann", "stars": 2.5, "tags": ["a", "b"], "open": None}
    rows = _lines({"id": n, "prediction": "{}", "fields": objects, "target": objects} for n in range(4))
    yield Target(("score", "p.jsonl", "--json"), {"p.jsonl": rows}, ("p.jsonl",), share=2)
    gold = {
        "p.jsonl": _lines({"id": row["id"], "prediction": "a"} for row in _ROWS),
        "g.jsonl": _lines(_ROWS),
    }
    yield Target(("score", "p.jsonl", "--gold", "g.jsonl"), gold, tuple(gold), share=3)
    questions = json.dumps(
        published.questions_file(published.question(), published.question(id="q2"))
    ).encode()
    answers = {"a.json": json.dumps({"q1": ["Ann", "Bo"], "q2": []}).encode(), "g.json": questions}
    yield Target(("score", "a.json", "--gold", "g.json"), answers, tuple(answers), share=4)
    texts = {"p.txt": b"a;b\nc\n", "g.txt": b"a;b\nc;d\n", "s.txt": b"a b c\nc and e\n"}
    yield Target(
        ("score", "p.txt", "--gold", "g.txt", "--set", "sources=s.txt"), texts, tuple(texts), share=2
    )


@cache
def _model(**settings: Any) -> Mapping[str, bytes]:
    with TemporaryDirectory() as folder:
        tiny_checkpoint(Path(folder), **settings)
        return {f"model/{path.name}": path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


@cache
def _adapted() -> Mapping[str, bytes]:
    """A Llama's adapter in ``model``, and what it is for in ``base``."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        checkpoint = load_checkpoint(str(tiny_checkpoint(folder / "base", family="llama")))
        lora.add_adapters(checkpoint.model, 2, seed=0)
        save_checkpoint(checkpoint, folder / "model")
        change(folder / "model" / ADAPTER, base_model_name_or_path="base")
        return {
            f"{part}/{path.name}": path.read_bytes()
            for part in ("base", "model")
            for path in (folder / part).iterdir()
        }


@cache
def _workspace() -> Mapping[str, bytes]:
    """What `segment` leaves."""
    with TemporaryDirectory() as folder:
        data, out = Path(folder, "data.jsonl"), Path(folder, "out")
        data.write_bytes(_lines(_ROWS))
        run("segment", data, "--out", out, "--quiet")
        return {f"pipedec-workspace/data/{path.name}": path.read_bytes() for path in out.iterdir()}


def _shards(whole: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The lines of a run as its three shards would have them, with their manifests."""
    parts = {}
    for number, line in enumerate(whole["out.jsonl"].splitlines(keepends=True), start=1):
        manifest = json.loads(whole["out.manifest.json"]) | {
            "examples": 1,
            "shard": {"number": number, "of": 3, "records": 3},
            "result": {"examples": 1, "sha256": hashlib.sha256(line).hexdigest()},
        }
        job = manifest | {"examples": 3, "shard": None, "shards": 3, "result": None}
        parts["made/manifest.json"] = json.dumps(job).encode()
        parts[f"made/part-{number}-of-3.jsonl"] = line
        parts[f"made/part-{number}-of-3.manifest.json"] = json.dumps(manifest).encode()
    return parts


def _model_targets() -> Iterable[Target]:
    shown = ("generate", "--text", "a", "--model", "model", "--set", "max_tokens=20")
    for ending in ("/config.json", "tokenizer.json", "_config.json", "sentences.json", ".safetensors"):
        yield Target(shown, _model(level="sentence"), (ending,), share=2)
    for family in ("llama", "gemma3"):
        yield Target(shown, _model(family=family), ("/config.json",), share=3)
        yield Target(shown, _model(family=family), (".safetensors",))
    if find_spec("peft"):  # without which an adapter is refused, whatever it holds
        yield Target(shown, _adapted(), ("adapter_config.json",), share=2)
        yield Target(shown, _adapted(), ("adapter_model.safetensors",), share=2)
    taught = json.dumps({"settings": {"teacher": {"name": "t5", "sha256": "0"}}, "result": {}}).encode()
    yield Target(shown, {**_model(level="sentence"), "model/training.json": taught}, ("training.json",))
    data = {"data.jsonl": _lines(_ROWS[:3])}
    words = ("generate", "data.jsonl", "--model", "model", "--out", "out.jsonl")
    yield Target(words, {**_model(), **data}, ("data.jsonl",), generated, share=2)
    texts = {"stdin.txt": "".join(f"{row['source']}\n" for row in _ROWS).encode()}
    words = ("generate", "-", "--plain", "--model", "model", "--out", "out.jsonl")
    yield Target(words, {**_model(), **texts}, ("stdin.txt",), generated_of_text)
    words = ("generate", "data.jsonl", "--model", "model", "--out", "out.jsonl")
    with TemporaryDirectory() as name:
        folder = Path(name)
        for path, content in {**_model(), **data}.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_bytes(content)
        run(
            "generate",
            folder / "data.jsonl",
            "--model",
            folder / "model",
            "--out",
            folder / "out.jsonl",
            "--quiet",
        )
        begun = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    started = begun | {"out.jsonl": b"".join(begun["out.jsonl"].splitlines(keepends=True)[:2])}
    resumed = (*words, "--resume")
    yield Target(resumed, {**_model(), **started}, ("out.jsonl", "out.manifest.json"), generated, share=3)
    aside = (*words, "--skip-invalid")
    yield Target(aside, {**_model(), **data}, ("data.jsonl",), generated_or_set_aside, share=2)
    parts = _shards(begun)
    yield Target(("shard", "merge", "made"), parts, (".jsonl", ".json"), merged, share=2)
    plain = {**_model(level="sentence", decoder="sequential"), **_workspace()}
    files = ("data/segmentation.json", "data/sentences.json", "data/test.jsonl")
    yield Target(("generate", "--model", "model"), plain, files, share=2)
    few = ["--max-steps", "1", "--batch-size", "2", "--out", "t", "--set", "dev_examples=1"]
    trained = ("train", "--model", "model", *few)
    manifest = json.dumps({"settings": {"training": {"seed": 1}}, "versions": {}, "inputs": []}).encode()
    files = ("data/segmentation.json", "data/sentences.json", "data/train.jsonl", "t/manifest.json")
    yield Target((*trained, "--overwrite"), {**_model(), **_workspace(), "t/manifest.json": manifest}, files)


def _value_targets() -> Iterable[Target]:
    for words, value in (
        (("generate", "--text", "a", "--delay"), "2"),
        (("generate", "--text", "a", "--batch-size"), "auto"),
        (("generate", "--text", "a", "--device"), "cuda:0"),
        (("report", "--delays"), "1,2,3"),
        (("bench", "--model", "none", "--set"), "rows=1,4,8"),
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
    found = (*_segment_targets(), *_import_targets(), *_score_targets(), *_model_targets(), *_value_targets())
    return tuple(target for target in found for _ in range(target.share))
