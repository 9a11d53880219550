"""The model card of a trained folder, README.md. A user's text in it is data, not Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from pipedec_cli.data.errors import log, many
from pipedec_cli.data.inputs import is_hub_name
from pipedec_cli.data.reading import real
from pipedec_cli.data.resumable import SEGMENTATION_FILE
from pipedec_cli.data.trained import is_fresh
from pipedec_cli.data.workspace import segmented_with
from pipedec_cli.data.writing import to_json, write_text
from pipedec_cli.view.tables import (
    Sheet,
    count,
    escaped,
    markdown,
    number,
    one_section,
    points,
)

if TYPE_CHECKING:
    from pipedec_cli.model.checkpoint import Checkpoint

CARD: Final = "README.md"
_MARK: Final = b"written by `pipedec train`"
#: Settings that name the user's files, or that the card gives elsewhere.
_LEFT_OUT: Final = ("model", "data", "teacher", "training", "cpu")


def write_card(
    folder: Path,
    checkpoint: Checkpoint,
    record: Mapping[str, Any],
    data: Path,
    examples: int,
) -> None:
    """Write the card of a training into its folder. A README.md that pipedec did not write stays.

    Args:
        folder: the model's.
        checkpoint: the trained model.
        record: training.json, the manifest with its ``result``.
        data: the folder that `segment` wrote.
        examples: how many it was trained on.
    """
    path = folder / CARD
    if path.exists() and not (path.is_file() and _MARK in path.read_bytes()):
        log.warning(
            f"{path} was not made by pipedec: it stays, and no model card is written"
        )
    else:
        write_text(path, model_card(checkpoint, record, data, examples))


def model_card(
    checkpoint: Checkpoint, record: Mapping[str, Any], data: Path, examples: int
) -> str:
    """The card as Markdown; see `write_card`. The licence is unknown if the card of the base model names none."""
    from huggingface_hub import ModelCard, ModelCardData

    name = checkpoint.name
    settings = record["settings"]
    backbone = checkpoint.backbone
    parameters = checkpoint.model.num_parameters() / 1e6
    pipelined = settings["decoder"] == "pipelined"
    fresh = is_fresh(name)
    licence = None if fresh else licence_of(name)
    source = segmented_with(data / SEGMENTATION_FILE, "data") or "train.jsonl"
    teacher = (settings.get("teacher") or {}).get("name")
    front = ModelCardData(
        license=licence or "unknown",
        base_model=None if fresh or Path(name).is_dir() else name,
        datasets=[source.partition(":")[0]] if is_hub_name(source) else None,
        library_name="pipedec" if pipelined else "transformers",
        pipeline_tag="text-generation",
        tags=_tags(checkpoint, pipelined=pipelined),
    )
    card = ModelCard.from_template(
        front,
        template_path=str(Path(__file__).with_suffix(".md")),
        family=backbone.name,
        pipelined=pipelined,
        auto_class=backbone.auto_class,
        size=f"{parameters:.1f} M parameters",
        start=_start(name, teacher),
        examples=many(examples, "example"),
        teacher=_name_of(teacher) if teacher else "",
        data=escaped(source if is_hub_name(source) else Path(source).name),
        licence=licence,
        fresh=fresh,
        sheets="\n".join(map(markdown, training_sheets(checkpoint, record))),
        **_reading(checkpoint),
    )
    return f"{card}\n"


def _tags(checkpoint: Checkpoint, *, pipelined: bool) -> list[str]:
    tags = [checkpoint.model.config.model_type, "pipedec"]
    if pipelined:
        tags.append("pipelined-decoding")
    return tags


def _start(name: str, teacher: str | None) -> str:
    """What the weights were before the training."""
    if teacher == name:
        return "its teacher's weights"
    return f"fresh weights (`{name}`)" if is_fresh(name) else _name_of(name)


def _reading(checkpoint: Checkpoint) -> dict[str, Any]:
    """How a model reads a source, for the template of the card."""
    from pipedec_cli.model.text import SOURCE, prompt_text

    codec = checkpoint.codec()
    settings = checkpoint.settings
    around = codec.prefix + SOURCE
    if codec.prompt is not None:
        around = codec.prompt.template
    prompt = ""
    if settings and checkpoint.backbone.prompted:
        text = prompt_text(checkpoint.tokenizer, settings.prompt, chat=settings.chat)
        # As a string of Python. The date in a chat template is always the same.
        prompt = ascii(text)
    return {
        "level": to_builtins(settings)["segmentation"]["level"],
        "around": escaped(json.dumps(around, ensure_ascii=False)),
        "chat": codec.prompt is not None and codec.prompt.chat,
        "most": f"{codec.max_source_tokens:,}",
        "prompt": prompt,
    }


def _name_of(model: str) -> str:
    """The name of a model's folder, or of a hub model."""
    return escaped(real(model).name if Path(model).is_dir() else model)


def training_sheets(checkpoint: Checkpoint, record: Mapping[str, Any]) -> list[Sheet]:
    """The settings of a training, its scores, and the versions of the software."""
    versions = {
        package: version or "" for package, version in record["versions"].items()
    }
    tables = {
        "Settings": _settings(checkpoint, record["settings"]),
        "Scores": _scores(checkpoint, record),
        "Versions": versions,
    }
    sheets = []
    for title, rows in tables.items():
        sheets.append(Sheet(title, ("",), one_section(rows.items())))
    return sheets


def _settings(checkpoint: Checkpoint, given: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a training by name, as JSON: those `given` in training.json, and those of the segmentation."""
    segmentation = to_builtins(checkpoint.settings)["segmentation"]
    settings = {**given, **given["training"], **segmentation}
    left_out = set(_LEFT_OUT)
    if settings.get("max_steps"):
        left_out.add("epochs")
    rows = {}
    for name, value in settings.items():
        if name == "fields":
            value = [field["name"] for field in value]  # noqa: PLW2901
        if name not in left_out:
            rows[name] = to_json(value)
    return rows


def _scores(checkpoint: Checkpoint, record: Mapping[str, Any]) -> dict[str, str]:
    """The losses and the dev score of a training, and when its weights were the best, by what each is called."""
    from pipedec_cli.metrics.scoring import dev_measure

    result = record["result"]
    segmentation = to_builtins(checkpoint.settings)["segmentation"]
    measure = dev_measure(segmentation["level"])
    metric = measure.headline[measure.primary]
    against = ", against the teacher" if record["settings"].get("teacher") else ""
    loss = number("{:.3f}", result["loss"])
    dev_loss = number("{:.3f}", result.get("dev_loss"))
    return {
        "training loss per token, over all updates": loss,
        "dev loss per token": dev_loss,
        f"dev {metric}{against}": points(result.get("dev_score")),
        "updates made by then": count(result.get("dev_update")),
        "updates that the weights had, of all": _weights(result),
    }


def _weights(result: Mapping[str, Any]) -> str:
    """Which of the weights are kept; "" if an older training.json does not say."""
    update = result.get("weights_update")
    if update is None:
        return ""
    best = result.get("best_by")
    why = f"the best by {best.replace('_', ' ')}" if best else "the last"
    return f"{update:,} of {result['updates']:,}, {why}"


def licence_of(name: str) -> str | None:
    """The licence that the card of a local folder or of a hub model names; None if it names none."""
    from huggingface_hub import ModelCard

    # No file, no text, any error of the hub or the network: the training is done.
    with suppress(Exception):
        card = Path(name) / CARD if Path(name).is_dir() else name
        licence = ModelCard.load(card, ignore_metadata_errors=True).data.license
        if re.fullmatch(r"(?!other|unknown)[\w.-]{1,40}", licence):
            return str(licence)
    return None
