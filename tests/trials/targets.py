"""What the fuzzer hurts: small valid files of every format, the command that reads them, and what must not be lost.

Records are counted by other means than the tool's own.
"""

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import chdir
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.checkpoints import TOLD, tiny_checkpoint
from tests.data.importers import published
from tests.model.chats import DATED, foreign
from tests.running import run

#: Written and read, as counted in a case's folder after a command that succeeded with
#: this on stdout.
Count = Callable[[Path, str], tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Target:
    """A command line, the files that it finds, those of them that are hurt, and how often it is drawn."""

    arguments: tuple[str, ...]
    files: Mapping[str, bytes]
    hurt: tuple[
        str, ...
    ]  # names, or ends of names; the content of VALUE stands in the command line
    counted: Count | None = None
    share: int = 1

    @property
    def name(self) -> str:
        return f"{' '.join(self.arguments[:2])} ({', '.join(self.hurt)})"


VALUE = "VALUE"  # the name of a file whose content stands in the command line
ROWS: Final[list[dict[str, Any]]] = [
    {
        "id": str(n),
        "source": source,
        "target": " ".join(told),
        "keyphrases": [*told],
        "more": {"a": [None]},
    }
    for n, (source, told) in enumerate(TOLD * 2)
]
#: Of objects: a key of each kind, one in a part that is referred to, and one in an
#: object within the object.
SCHEMA: Final[dict[str, Any]] = {
    "properties": {
        "name": {"type": ["string", "null"]},
        "stars": {"$ref": "#/$defs/S"},
        "tags": {"type": "array"},
        "place": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "a town"}},
        },
    },
    "$defs": {"S": {"enum": list(range(9))}},
}


def lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _filled(content: bytes) -> int:
    return sum(
        bool(line.removeprefix(b"\xef\xbb\xbf").strip())
        for line in content.split(b"\n")
    )


def _filled_lines(*paths: Path) -> int:
    return sum(_filled(path.read_bytes()) for path in paths)


def _records_in(path: Path) -> int:
    content = path.read_bytes()
    if path.suffix == ".gz":
        return _filled(gzip.decompress(content))
    if path.suffix in (".csv", ".tsv"):
        text = io.StringIO(content.decode("utf-8-sig"), newline="")
        separator = "," if path.suffix == ".csv" else "\t"
        return (
            sum(bool(row) for row in csv.reader(text, delimiter=separator, strict=True))
            - 1
        )
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return int(parquet.read_table(path).num_rows)
    if path.suffix == ".json" and content.removeprefix(
        b"\xef\xbb\xbf"
    ).lstrip().startswith(b"["):
        return len(json.loads(content.decode("utf-8-sig")))
    return _filled_lines(path)


def segmented(name: str) -> Count:
    return lambda folder, _: (
        _filled_lines(*folder.glob("out/*.jsonl")),
        _records_in(folder / name),
    )


def generated(folder: Path, stdout: str) -> tuple[int, int]:
    """Those that were set aside are counted as written."""
    aside = folder.glob("out.invalid.jsonl")
    return _filled_lines(folder / "out.jsonl", *aside), _records_in(
        folder / "data.jsonl"
    )


def generated_of_text(folder: Path, stdout: str) -> tuple[int, int]:
    read = (folder / "stdin.txt").read_bytes().decode("utf-8-sig").split("\n")
    return _filled_lines(folder / "out.jsonl"), sum(bool(line.strip()) for line in read)


def merged(folder: Path, stdout: str) -> tuple[int, int]:
    return _filled_lines(folder / "made/predictions.jsonl"), _filled_lines(
        *folder.glob("made/part-*.jsonl")
    )


def imported(folder: Path, stdout: str) -> tuple[int, int]:
    """Each file has as many lines as were counted; that nothing else was left out, JSON lines can tell."""
    files = json.loads(stdout)["files"]
    return _filled_lines(*(folder / file["path"] for file in files)), sum(
        file["examples"] for file in files
    )


def imported_lines(folder: Path, stdout: str) -> tuple[int, int]:
    written, told = imported(folder, stdout)
    left_out = sum(file["left_out"] for file in json.loads(stdout)["files"])
    read = _filled_lines(*(folder / "set").iterdir())
    return (written + left_out, read) if written == told else (written, told)


def scored(folder: Path, stdout: str) -> tuple[int, int]:
    return json.loads(stdout)["rows"]["scored"], _records_in(folder / "p.jsonl")


def _table(rows: Iterable[Mapping[str, Any]], separator: str) -> bytes:
    text = io.StringIO()
    cells = [
        ("id", "source", "target"),
        *((row["id"], row["source"], row["target"]) for row in rows),
    ]
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
        yield Target(
            words,
            {name: content},
            (name,),
            segmented(name),
            share=4 if name == "data.jsonl" else 2,
        )
    words = ("segment", "-", "--level", "phrase", "--out", "out", "--json")
    yield Target(
        words, {"stdin.jsonl": lines(ROWS)}, ("stdin.jsonl",), segmented("stdin.jsonl")
    )
    sources = {
        "data.jsonl": lines({"id": row["id"], "source": row["source"]} for row in ROWS)
    }
    words = ("segment", "data.jsonl", "--sources-only", "--out", "out", "--json")
    yield Target(words, sources, ("data.jsonl",), segmented("data.jsonl"))
    config = b'level = "clause"\nheld-out = 0.2\n[segment]\nlimit = 9\n'
    words = ("segment", "data.jsonl", "--config", "c.toml", "--out", "out")
    yield Target(
        words, {"data.jsonl": lines(ROWS), "c.toml": config}, ("c.toml",), share=3
    )
    recipe = b'[generate]\ndelay = 2\n[segment]\nlevel = "phrase"\nseparator = ";"\n'
    yield Target(words, {"data.jsonl": lines(ROWS), "c.toml": recipe}, ("c.toml",))
    files = {f"set/{name}.jsonl": lines(ROWS[:4]) for name in ("train", "dev", "test")}
    yield Target(("segment", "set", "--out", "out"), files, tuple(files))
    objects = [
        {
            "source": f"case {n}",
            "target": {"name": f"n {n}", "stars": n, "tags": ["a", "b"]} | more,
        }
        for n, more in enumerate([{"place": {"city": "Rome"}}, {"place": {}}, {}] * 3)
    ]
    files = {
        "data.jsonl": lines(objects),
        "s.json": json.dumps(SCHEMA, indent=1).encode(),
    }
    words = ("segment", "data.jsonl", "--level", "field", "--out", "out", "--json")
    yield Target(words, files, ("data.jsonl",), segmented("data.jsonl"), share=3)
    yield Target((*words, "--schema", "s.json"), files, ("s.json",), share=2)


def _import_targets() -> Iterable[Target]:
    for name, write in published.WRITERS.items():
        with TemporaryDirectory() as folder:
            write(Path(folder))
            files = {
                f"set/{path.name}": path.read_bytes() for path in Path(folder).iterdir()
            }
        count = imported_lines if name in ("kp20k", "kptimes", "pubmed") else imported
        yield Target(
            ("import", name, "set", "--out", "out", "--json"),
            files,
            tuple(files),
            count,
            share=2,
        )
    rows = lines(
        {"title": "A b", "abstract": "c d", "keyphrases": [["a", "b"], ["c"]]}
        for _ in range(4)
    )
    yield Target(
        ("import", "keyphrases", "k.json", "--out", "o"), {"k.json": rows}, ("k.json",)
    )
    story = b"It rained.\n\nAnn got wet.\n\n@highlight\n\nIt rained\n\n@highlight\n\nAnn got wet\n"
    yield Target(
        ("import", "cnn_dailymail", "s", "--out", "o"),
        {"s/1.story": story},
        ("s/1.story",),
    )
    tagged = {
        "a.conll": b"-DOCSTART- O\n\nAnn NNP B-PER\nLee NNP I-PER\nof x O\n\nRome\tU-LOC\n"
    }
    yield Target(("import", "conll", "a.conll", "--out", "o"), tagged, ("a.conll",))
    texts = {
        "a_src.txt": b"one text\nanother <eos> text\n",
        "a_trg.txt": b"a;b\nc;<peos>;d\n",
    }
    yield Target(("import", "parallel", "a_src.txt", "--out", "o"), texts, tuple(texts))


def _predictions() -> dict[str, bytes]:
    """Predictions with their manifest."""
    traced = {"steps": 3, "tokens": 9, "truncated": None, "seconds": 0.1}
    traced |= {"grid": [{"start": 1, "tokens": [4, 1]}], "source_token_ids": [3]}
    rows = []
    for row in ROWS:
        made = {"prediction": row["target"], "segments": row["keyphrases"], **traced}
        rows.append({**row, **made})
    segmentation = {"level": "sentence", "separators": [], "joiner": " ", "sub_max": 20}
    manifest = {
        "examples": 12,
        "settings": {"delay": 2, "limit": 12},
        "segmentation": segmentation,
        "inputs": [],
        "model": {"name": "m", "sha256": "0"},
        "data": {"name": "d", "sha256": "1"},
        "versions": {"pipedec": "0.2.0", "torch": None},
    }
    told = json.dumps(manifest, indent=2).encode()
    return {"p.jsonl": lines(rows), "p.manifest.json": told}


def _score_targets() -> Iterable[Target]:
    files = _predictions()
    own = ("p.jsonl",)
    yield Target(("score", "p.jsonl", "--json"), files, own, scored, share=4)
    yield Target(("score", "p.jsonl"), files, ("p.manifest.json",), share=3)
    keyphrases = ("score", "p.jsonl", "--task", "keyphrases", "--json")
    yield Target(keyphrases, files, own, scored, share=2)
    yield Target(("score", "p.jsonl", "p.jsonl"), files, own)
    told = {"name": "Ann", "stars": 2.5, "tags": ["a", "b"], "open": None}
    row = {"prediction": "{}", "fields": told, "target": told}
    objects = {"p.jsonl": lines({"id": n, **row} for n in range(4))}
    yield Target(("score", "p.jsonl", "--json"), objects, own, share=2)
    guessed = lines({"id": row["id"], "prediction": "a"} for row in ROWS)
    gold = {"p.jsonl": guessed, "g.jsonl": lines(ROWS)}
    yield Target(("score", "p.jsonl", "--gold", "g.jsonl"), gold, tuple(gold), share=3)
    asked = published.questions_file(published.question(), published.question(id="q2"))
    told_answers = b'{"q1": ["Ann", "Bo"], "q2": []}'
    answers = {"a.json": told_answers, "g.json": json.dumps(asked).encode()}
    words = ("score", "a.json", "--gold", "g.json")
    yield Target(words, answers, tuple(answers), share=4)
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
        (("segment", "none.jsonl", "--config"), "msqa"),
        (("segment", "none.jsonl", "--config"), "none.toml"),
        ((), "segment"),
    ):
        yield Target((*words, VALUE), {VALUE: value.encode()}, (VALUE,))


# ---- what a model reads
# ------------------------------------------------------------------------------------------------

Files = Mapping[str, bytes]

GENERATE: Final = ("generate", "data.jsonl", "--model", "model", "--out", "out.jsonl")
FEW: Final = (
    "--max-steps",
    "2",
    "--batch-size",
    "2",
)
DATA: Final = {"data.jsonl": lines(ROWS[:3])}


def _files(folder: Path) -> Files:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _left(files: Files, *words: str) -> Files:
    """The files, and what a command leaves beside them."""
    with TemporaryDirectory() as name, chdir(name):
        for path, content in files.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(content)
        run(*words, "--quiet")
        return _files(Path())


def _made(make: Callable[[Path], object]) -> Files:
    with TemporaryDirectory() as folder:
        make(Path(folder))
        return _files(Path(folder))


@cache
def _model(**settings: Any) -> Files:
    return _made(lambda folder: tiny_checkpoint(folder / "model", **settings))


def _shards(whole: Files) -> Files:
    """The lines of a run as its three shards would have them, with their manifests."""
    parts = {}
    for number, line in enumerate(
        whole["out.jsonl"].splitlines(keepends=True), start=1
    ):
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


def _checkpoint_targets() -> Iterable[Target]:
    """The files of models."""
    shown = ("generate", "--text", "a", "--model", "model", "--max-tokens", "20")
    for ending in (
        "/config.json",
        "tokenizer.json",
        "_config.json",
        "sentences.json",
        ".safetensors",
    ):
        yield Target(shown, _model(level="sentence"), (ending,), share=2)
    for family in ("llama", "gemma3"):
        yield Target(shown, _model(family=family), ("/config.json",), share=3)
        yield Target(shown, _model(family=family), (".safetensors",))
    taught = json.dumps(
        {"settings": {"teacher": {"name": "t5", "sha256": "0"}}, "result": {}}
    ).encode()
    yield Target(
        shown,
        {**_model(level="sentence"), "model/training.json": taught},
        ("training.json",),
    )
    chat = _made(lambda folder: foreign(folder / "model", template=DATED))
    yield Target((*shown, "--chat"), chat, ("chat_template.jinja",), share=3)
    inside = {**json.loads(chat["model/tokenizer_config.json"]), "chat_template": DATED}
    chat = {**chat, "model/tokenizer_config.json": json.dumps(inside).encode()}
    chat.pop("model/chat_template.jinja")
    yield Target((*shown, "--chat"), chat, ("tokenizer_config.json",), share=2)
    if find_spec("gguf"):
        from tests.model.test_gguf import written

        file = {
            **_made(written),
            "cache/kept": b"",
        }  # the cache holds the folder that is made of the file
        words = (
            "generate",
            "--text",
            "a",
            "--model",
            "tiny.gguf",
            "--set",
            "time_max=9",
        )
        yield Target(words, file, ("tiny.gguf",), share=2)


def _decoding_targets() -> Iterable[Target]:
    """What a model decodes, what it is asked without training, and files of predictions that go on."""
    yield Target(GENERATE, {**_model(), **DATA}, ("data.jsonl",), generated, share=2)
    aside = (*GENERATE, "--skip-invalid")
    yield Target(aside, {**_model(), **DATA}, ("data.jsonl",), generated, share=2)
    texts = {"stdin.txt": "".join(f"{row['source']}\n" for row in ROWS).encode()}
    words = ("generate", "-", "--plain", "--model", "model", "--out", "out.jsonl")
    yield Target(words, {**_model(), **texts}, ("stdin.txt",), generated_of_text)
    made = _left({**_model(), **DATA}, *GENERATE)
    begun = {
        **made,
        "out.jsonl": b"".join(made["out.jsonl"].splitlines(keepends=True)[:2]),
    }
    yield Target(
        (*GENERATE, "--resume"),
        begun,
        ("out.jsonl", "out.manifest.json"),
        generated,
        share=3,
    )
    yield Target(
        ("shard", "merge", "made"), _shards(made), (".jsonl", ".json"), merged, share=2
    )
    objects = [
        {"source": f"case {n}", "target": {"name": f"n {n}", "stars": n}}
        for n in range(6)
    ]
    asked = {
        **DATA,
        "s.json": json.dumps(SCHEMA).encode(),
        "shots.jsonl": lines(objects),
    }
    asked |= _made(lambda folder: foreign(folder / "model"))
    asked[VALUE] = b"name, age int, kind: pub|restaurant, address.city"
    for words, name in (
        (("--schema", "s.json"), "s.json"),
        (("--shots", "shots.jsonl:2"), "shots.jsonl"),
        (("--fields", VALUE), VALUE),
        (("--ask", VALUE), VALUE),
    ):
        yield Target(
            (*GENERATE, "--set", "time_max=3", *words),
            asked,
            (name,),
            generated,
            share=2,
        )


def _training_targets() -> Iterable[Target]:
    """What `segment` leaves, as a model takes it; the teacher's texts; and a training that was stopped."""
    data = _left({"data.jsonl": lines(ROWS)}, "segment", "data.jsonl")
    plain = {**_model(level="sentence", decoder="sequential"), **data}
    files = ("data/segmentation.json", "data/sentences.json", "data/test.jsonl")
    yield Target(("generate", "--model", "model"), plain, files, share=2)
    trained = ("train", "--model", "model", *FEW, "--out", "t")
    manifest = json.dumps(
        {"settings": {"training": {"seed": 1}}, "versions": {}, "inputs": []}
    ).encode()
    files = (
        "data/segmentation.json",
        "data/sentences.json",
        "data/train.jsonl",
        "t/manifest.json",
    )
    yield Target(
        (*trained, "--overwrite"),
        {**_model(), **data, "t/manifest.json": manifest},
        files,
    )
    taught = ("train", "--teacher", "model", *FEW, "--out", "t")
    texts = {
        name: text
        for name, text in _left(plain, *taught).items()
        if not name.startswith("t/")
    }
    written = tuple(
        name for name in texts if "/generations/" in name and "-train-" in name
    )
    yield Target(taught, texts, written, share=2)
    left = _left({**_model(), **data}, *trained)
    stopped = {
        name: left[name]
        for name in left
        if not name.startswith("t/") or "checkpoint-1" in name
    }
    stopped["t/training.json"] = json.dumps(
        {**json.loads(left["t/training.json"]), "result": None}
    ).encode()
    files = (
        "trainer_state.json",
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
        "t/training.json",
    )
    yield Target((*trained, "--resume"), stopped, files, share=2)


@cache
def targets() -> tuple[Target, ...]:
    """All of them, each as often as its share says."""
    of_data = (_segment_targets, _import_targets, _score_targets, _value_targets)
    of_models = (_checkpoint_targets, _decoding_targets, _training_targets)
    found = (target for kind in (*of_data, *of_models) for target in kind())
    return tuple(target for target in found for _ in range(target.share))
