"""The README.md of a trained folder, a model card as Hugging Face shows it, and its training.html. A user's text in it is data, not Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from pipedec_cli.data.artifact import SEGMENTATION_FILE
from pipedec_cli.data.places import is_hub_name
from pipedec_cli.data.reading import real
from pipedec_cli.data.trained import FRESH
from pipedec_cli.data.wording import many
from pipedec_cli.data.workspace import segmented_with
from pipedec_cli.data.writing import to_json, write_text
from pipedec_cli.view.console import Talk
from pipedec_cli.view.markdown import escaped, markdown_lines
from pipedec_cli.view.sheet import Section, Sheet, count, number, points

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint

CARD: Final = "README.md"
PAGE: Final = "training.html"
_MARK: Final = b"written by `pipedec train`"
#: The licence in the first lines of a card; `other` and `unknown` name none.
_LICENCE: Final = re.compile(
    r"---\n(?:(?!---).*\n)*?license: *[\"']?(?!other|unknown)([\w.-]{1,40})[\"']? *\n"
)
#: How Python loads a folder; an adapter by hand, since transformers takes the config.json beside it for a model's.
_LOAD: Final = """\
from transformers import $kind, AutoTokenizer

model, tokenizer = (kind.from_pretrained("FOLDER") for kind in ($kind, AutoTokenizer))
settings = model.config.pipedec"""
_LOAD_ADAPTER: Final = """\
from peft import PeftConfig, PeftModel
from transformers import AutoConfig, $kind, AutoTokenizer, GenerationConfig

config, tokenizer = (kind.from_pretrained("FOLDER") for kind in (AutoConfig, AutoTokenizer))
base = $kind.from_pretrained(PeftConfig.from_pretrained("FOLDER").base_model_name_or_path)
base.generation_config = GenerationConfig.from_model_config(config)
model, settings = PeftModel.from_pretrained(base, "FOLDER").eval(), config.pipedec"""
#: Settings of a training that name its owner's files, or that the card tells otherwise.
_UNTOLD: Final = ("model", "data", "teacher", "training", "cpu")


def write_card(
    folder: Path, checkpoint: Checkpoint, record: Mapping[str, Any], data: Path, examples: int, talk: Talk
) -> None:
    """Write a trained checkpoint's card into its folder, unless somebody else's README.md is there, and the page of its training.

    The record is the manifest of its training, with the ``result``; `data` is the folder that `segment` wrote.
    """
    from pipedec_cli.view.page.command_pages import training_page

    path = folder / CARD
    if path.exists() and not (path.is_file() and _MARK in path.read_bytes()):
        why = "is there already and was not made by pipedec"
        talk.warn(f"{path} {why}: it stays, and no model card is written")
    else:
        write_text(path, model_card(checkpoint, record, data, examples))
    curve = record["result"].get("curve", ())
    write_text(folder / PAGE, training_page(folder.name, curve, training_sheets(checkpoint, record)))


def model_card(checkpoint: Checkpoint, record: Mapping[str, Any], data: Path, examples: int) -> str:
    """The card as Markdown. A licence that the base model's own card does not name is said to be unknown."""
    from pipedec_cli.model.training import lora

    name, asked = checkpoint.name, record["settings"]
    pipelined, local = asked["decoder"] == "pipelined", Path(name).is_dir()
    fresh = name in FRESH
    given = segmented_with(data / SEGMENTATION_FILE, "data") or "train.jsonl"
    teacher = (asked.get("teacher") or {}).get("name")
    hub = is_hub_name(given)
    licence = None if fresh else licence_of(name)
    todo = "Before you publish the model, put the one that holds into the first lines of this file."
    terms = f"That of the base model, as its card names it: {licence}. The data may bind you further."
    if licence is None:
        why = "No card of the base model names one that could be read."
        terms = f"{'The model was trained from scratch: none has been chosen.' if fresh else why} {todo}"
    front = {
        "license": licence or "unknown",
        "base_model": None if fresh or local else name,
        "datasets": [given.partition(":")[0]] if hub else None,
        "library_name": "pipedec" if pipelined else "transformers",
        "pipeline_tag": "text-generation",
        "tags": [checkpoint.model.config.model_type, "pipedec", *["pipelined-decoding"] * pipelined],
    }
    start = "its teacher's weights" if teacher == name else _called(name)
    if fresh:
        start = f"fresh weights (`{name}`)"
    template, use = (
        Path(__file__).with_name(f"model_card{of}.md").read_text(encoding="utf-8")
        for of in ("", f"_{asked['decoder']}{'_prompted' if checkpoint.backbone.prompted else ''}")
    )
    needs, load = "`transformers`", _LOAD
    if lora.has_adapters(checkpoint.model):
        use = f"The folder holds an adapter (LoRA) for the model that it started from, which must be there.\n{use}"
        needs, load = "`transformers` and `peft`", _LOAD_ADAPTER
    use = Template(use).substitute(
        needs=needs,
        load=Template(load).substitute(kind=checkpoint.backbone.auto_class),
        prompt=_prompt_literal(checkpoint),
    )
    return Template(template).substitute(
        front="\n".join(f"{key}: {to_json(value)}" for key, value in front.items() if value),
        family=checkpoint.backbone.name,
        kind="a pipelined" if pipelined else "an ordinary, sequential",
        size=f"{checkpoint.model.num_parameters() / 1e6:.1f} M parameters",
        start=start,
        examples=many(examples, "example"),
        written=f", with the texts of {_called(teacher)} for targets" if teacher else "",
        data=escaped(given if hub else Path(given).name),
        level=to_builtins(checkpoint.settings)["segmentation"]["level"],
        purpose=_purpose(checkpoint),
        use=use,
        licence=terms,
        sheets="\n".join(
            line for sheet in training_sheets(checkpoint, record) for line in markdown_lines(sheet)
        ),
    )


def _prompt_literal(checkpoint: Checkpoint) -> str:
    """What stands around a source, as a string of Python in one line; that of a chat was made on the day that it is always told."""
    from pipedec_cli.model.text import prompt_text

    used = checkpoint.settings
    if used is None or not checkpoint.backbone.prompted:
        return ""
    return ascii(prompt_text(checkpoint.tokenizer, used.prompt, chat=used.chat))


def _called(model: str) -> str:
    """A folder's own name, or that of a hub model."""
    return escaped(real(model).name if Path(model).is_dir() else model)


def _purpose(checkpoint: Checkpoint) -> str:
    """What a model may be asked: what it was trained on, in the words around it, and no more."""
    from pipedec_cli.model.text import SOURCE

    text = checkpoint.codec()
    around = text.prompt.template if text.prompt else text.prefix + SOURCE
    chat = " in its chat template" if text.prompt and text.prompt.chat else ""
    return (
        "It writes from sources like those of its training data what stands there as targets, and was taught nothing else. "
        f"A source is read as {escaped(json.dumps(around, ensure_ascii=False))}{chat}, and cut so that all of it is "
        f"{text.max_source_tokens:,} tokens at most; pipedec sees to both. What it writes may be wrong about its source."
    )


def training_sheets(checkpoint: Checkpoint, record: Mapping[str, Any]) -> list[Sheet]:
    """Settings of a training, what it came to, and with which versions."""
    from pipedec_cli.evaluate.scoring import dev_measure

    asked, result = record["settings"], record["result"]
    settings = asked | asked["training"] | to_builtins(checkpoint.settings)["segmentation"]
    teacher, measure = asked.get("teacher"), dev_measure(settings["level"])
    metric = measure.headline[measure.primary]
    scores = {
        "training loss a token, over all updates": f"{result['loss']:.3f}",
        "dev loss a token": number("{:.3f}", result.get("dev_loss")),
        f"dev {metric}{', against the teacher' if teacher else ''}": points(result.get("dev_score")),
        "updates made by then": count(result.get("dev_update")),
    }
    untold = (*_UNTOLD, "epochs") if settings.get("max_steps") else _UNTOLD
    told = {
        "Settings": {label: to_json(value) for label, value in settings.items() if label not in untold},
        "Scores": scores,
        "Versions": {package: version or "" for package, version in record["versions"].items()},
    }
    return [Sheet(title, ("",), (Section("", tuple(rows.items())),)) for title, rows in told.items()]


def licence_of(name: str) -> str | None:
    """The licence that the card of a local folder or of a hub model names; None if there is none."""
    from huggingface_hub import hf_hub_download

    with suppress(Exception):  # no file, no text, whatever the hub and the network raise: training is done
        path = Path(name) / CARD if Path(name).is_dir() else Path(hf_hub_download(name, CARD))
        with path.open(encoding="utf-8") as file:
            found = _LICENCE.match(file.read(10_000))
        return found and found[1]
    return None
