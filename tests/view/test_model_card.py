"""The model card of a trained folder: what it promises, and what a user's own text may do to it, which is nothing."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from pipedec_cli.data.writing import write_json
from pipedec_cli.decoding.decoder import load
from pipedec_cli.view.model_card import licence_of, model_card, write_card
from tests.checkpoints import TOLD, fresh_toy, tiny_checkpoint
from tests.running import run, write_lines

#: One update that changes nothing: the model goes on telling what it knows.
UNCHANGED = [
    "--max-steps",
    "1",
    "--learning-rate",
    "1e-12",
    "--device",
    "cpu",
]
BASE = '---\nlanguage: en\nlicense: "apache-2.0"\n---\n# A T5\n'


def train(folder: Path, decoder: Any = "pipelined", *more: str, base: str = "") -> Path:
    """The folder of a model that was trained from one in `folder`, whose own card is `base`."""
    start = tiny_checkpoint(folder / "start", decoder=decoder)
    (start / "README.md").write_text(base, encoding="utf-8")
    rows = (
        {"source": source, "target": " ".join(segments)}
        for source, segments in TOLD * 4
    )
    write_lines(folder / "d.jsonl", *rows)
    run("segment", folder / "d.jsonl", "--level", "sentence", "-w", folder)
    run(
        "train", "-w", folder, "--decoder", decoder, "--model", start, *UNCHANGED, *more
    )
    return folder / "models" / decoder


def test_a_pipelined_model_of_which_transformers_writes_the_first_subsequence_says_so(
    tmp_path,
):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    folder = train(tmp_path, base=BASE)
    model, tokenizer = (
        kind.from_pretrained(folder) for kind in (AutoModelForSeq2SeqLM, AutoTokenizer)
    )
    source, segments = TOLD[3]
    ids = model.generate(**tokenizer(source, return_tensors="pt"), max_new_tokens=200)
    assert tokenizer.decode(ids[0], skip_special_tokens=True).strip() == segments[0]
    assert load(str(folder)).texts([source]).__next__().segments == segments
    card = ModelCard.load(folder / "README.md")
    assert "`generate()` writes the first subsequence only" in card.text
    assert re.search(
        r"on\n\d+ examples of d.jsonl, cut into subsequences at level `sentence`",
        card.text,
    )
    assert (card.data.license, card.data.library_name) == ("apache-2.0", "pipedec")
    assert card.data.base_model is None
    assert "started from start" in card.text and str(tmp_path) not in card.content
    assert (
        re.search(r"\| dev ROUGE-L \| \d", card.text)
        and "| learning\\_rate | 1e-12 |" in card.text
    )


def test_a_sequential_models_own_lines_for_transformers_write_what_pipedec_writes(
    tmp_path,
):
    folder = train(tmp_path, "sequential")
    card = ModelCard.load(folder / "README.md")
    assert (card.data.license, card.data.library_name) == ("unknown", "transformers")
    source = TOLD[0][0]
    lines = re.search(r"```python\n(from transformers.*?)```", card.text, re.DOTALL)
    assert lines is not None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(lines[1].replace("FOLDER", str(folder)).replace("a source", source), {})
    assert printed.getvalue() == f"{next(load(str(folder)).texts([source])).text}\n"


@pytest.mark.parametrize(
    "base",
    [
        b"",
        b"license: mit\n",
        b"---\nlicense: other\n---",
        b"---\nlicense: mit|x\n---",
        b"---\nx: 1\n---\nlicense: mit",
        b"\0\xff",
    ],
)
def test_a_licence_that_the_base_model_does_not_name_is_unknown(tmp_path, base):
    (tmp_path / "README.md").write_bytes(base)
    assert licence_of(str(tmp_path)) is None


def record_of(prefix: str = "") -> dict[str, Any]:
    training = {
        "source_prefix": prefix,
        "decoder": "pipelined",
        "training": {"seed": 0},
    }
    return {"settings": training, "result": {"loss": 1.5}, "versions": {}}


def test_what_a_user_called_things_is_neither_markdown_nor_yaml(tmp_path):
    name = "x`<b>|[y](z)\nlicense: mit.jsonl"
    told = {"level": "phrase", "separators": [";"], "joiner": "; "}
    made_with = {"settings": {"data": f"/home/me/{name}"}}
    write_json(tmp_path / "segmentation.json", {**told, "manifest": made_with})
    prefix = "a | b\n---\nlicense: mit\n# Heading\n<script>"
    card = ModelCard(model_card(fresh_toy(), record_of(prefix), tmp_path, 1))
    assert card.data.license == "unknown"
    lines = card.content.splitlines()
    assert lines.count("---") == 2
    assert not [
        line for line in lines if line.startswith(("license: mit", "# Heading"))
    ]
    assert "1 example of x" in card.content
    assert not [
        text for text in ("<script>", "<b>", "/home/me") if text in card.content
    ]


def test_a_readme_of_somebody_else_stays_and_one_of_ours_is_replaced(tmp_path, caplog):
    card = tmp_path / "README.md"

    def write(**result: float) -> str:
        write_card(tmp_path, fresh_toy(), record_of() | {"result": result}, tmp_path, 1)
        return card.read_text(encoding="utf-8")

    card.write_text("mine")
    assert write(loss=1.5) == "mine" and "was not made by pipedec" in caplog.text
    card.unlink()
    assert "| 1.500 |" in write(loss=1.5)
    assert "| 0.250 |" in write(loss=0.25)
