"""Targets of the fuzzer that a model reads: its own files, what it decodes, and what runs and trainings leave."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import chdir
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.checkpoints import tiny_checkpoint
from tests.model.chats import DATED, foreign
from tests.running import run
from tests.trials.target import ROWS, SCHEMA, VALUE, Target, generated, generated_of_text, lines, merged

Files = Mapping[str, bytes]

GENERATE: Final = ("generate", "data.jsonl", "--model", "model", "--out", "out.jsonl")
FEW: Final = ("--max-steps", "2", "--batch-size", "2", "--set", "dev_examples=1", "--set", "evaluations=2")
DATA: Final = {"data.jsonl": lines(ROWS[:3])}


def _files(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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


def _checkpoint_targets() -> Iterable[Target]:
    """The files of models."""
    shown = ("generate", "--text", "a", "--model", "model", "--max-tokens", "20")
    for ending in ("/config.json", "tokenizer.json", "_config.json", "sentences.json", ".safetensors"):
        yield Target(shown, _model(level="sentence"), (ending,), share=2)
    for family in ("llama", "gemma3"):
        yield Target(shown, _model(family=family), ("/config.json",), share=3)
        yield Target(shown, _model(family=family), (".safetensors",))
    taught = json.dumps({"settings": {"teacher": {"name": "t5", "sha256": "0"}}, "result": {}}).encode()
    yield Target(shown, {**_model(level="sentence"), "model/training.json": taught}, ("training.json",))
    chat = _made(lambda folder: foreign(folder / "model", template=DATED))
    yield Target((*shown, "--chat"), chat, ("chat_template.jinja",), share=3)
    inside = {**json.loads(chat["model/tokenizer_config.json"]), "chat_template": DATED}
    chat = {**chat, "model/tokenizer_config.json": json.dumps(inside).encode()}
    chat.pop("model/chat_template.jinja")
    yield Target((*shown, "--chat"), chat, ("tokenizer_config.json",), share=2)
    if find_spec("gguf"):
        from tests.model.test_gguf import written

        file = {**_made(written), "cache/kept": b""}  # the cache holds the folder that is made of the file
        words = ("generate", "--text", "a", "--model", "tiny.gguf", "--set", "time_max=9")
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
    begun = {**made, "out.jsonl": b"".join(made["out.jsonl"].splitlines(keepends=True)[:2])}
    yield Target((*GENERATE, "--resume"), begun, ("out.jsonl", "out.manifest.json"), generated, share=3)
    yield Target(("shard", "merge", "made"), _shards(made), (".jsonl", ".json"), merged, share=2)
    objects = [{"source": f"case {n}", "target": {"name": f"n {n}", "stars": n}} for n in range(6)]
    asked = {**DATA, "s.json": json.dumps(SCHEMA).encode(), "shots.jsonl": lines(objects)}
    asked |= _made(lambda folder: foreign(folder / "model"))
    asked[VALUE] = b"name, age int, kind: pub|restaurant, address.city"
    for words, name in (
        (("--schema", "s.json"), "s.json"),
        (("--shots", "shots.jsonl:2"), "shots.jsonl"),
        (("--fields", VALUE), VALUE),
        (("--ask", VALUE), VALUE),
    ):
        yield Target((*GENERATE, "--set", "time_max=3", *words), asked, (name,), generated, share=2)


def _training_targets() -> Iterable[Target]:
    """What `segment` leaves, as a model takes it; the teacher's texts; and a training that was stopped."""
    data = _left({"data.jsonl": lines(ROWS)}, "segment", "data.jsonl")
    plain = {**_model(level="sentence", decoder="sequential"), **data}
    files = ("data/segmentation.json", "data/sentences.json", "data/test.jsonl")
    yield Target(("generate", "--model", "model"), plain, files, share=2)
    trained = ("train", "--model", "model", *FEW, "--out", "t")
    manifest = json.dumps({"settings": {"training": {"seed": 1}}, "versions": {}, "inputs": []}).encode()
    files = ("data/segmentation.json", "data/sentences.json", "data/train.jsonl", "t/manifest.json")
    yield Target((*trained, "--overwrite"), {**_model(), **data, "t/manifest.json": manifest}, files)
    taught = ("train", "--teacher", "model", *FEW, "--out", "t")
    texts = {name: text for name, text in _left(plain, *taught).items() if not name.startswith("t/")}
    yield Target(taught, texts, ("-train.jsonl", "-train.manifest.json"), share=2)
    left = _left({**_model(), **data}, *trained)
    stopped = {name: left[name] for name in left if not name.startswith("t/") or "checkpoint-1" in name}
    stopped["t/training.json"] = json.dumps({**json.loads(left["t/training.json"]), "result": None}).encode()
    files = ("trainer_state.json", "optimizer.pt", "scheduler.pt", "rng_state.pth", "t/training.json")
    yield Target((*trained, "--resume"), stopped, files, share=2)


KINDS: Final = (_checkpoint_targets, _decoding_targets, _training_targets)
