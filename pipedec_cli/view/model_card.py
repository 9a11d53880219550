"""The model card of a trained folder, README.md. A user's text in it is data, not Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from pipedec_cli.data.artifact import SEGMENTATION_FILE
from pipedec_cli.data.errors import log, many
from pipedec_cli.data.inputs import is_hub_name
from pipedec_cli.data.reading import real
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

    `record` is the manifest of the training with its ``result``; `data` is the folder
    that `segment` wrote.
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
    """The card as Markdown. The licence is unknown if the card of the base model names none."""
    from huggingface_hub import ModelCard, ModelCardData

    from pipedec_cli.model.text import SOURCE, prompt_text

    name, settings, backbone = checkpoint.name, record["settings"], checkpoint.backbone
    pipelined, fresh = settings["decoder"] == "pipelined", is_fresh(name)
    source = segmented_with(data / SEGMENTATION_FILE, "data") or "train.jsonl"
    teacher = (settings.get("teacher") or {}).get("name")
    licence = None if fresh else licence_of(name)
    codec, used = checkpoint.codec(), checkpoint.settings
    start = (
        "its teacher's weights"
        if teacher == name
        else f"fresh weights (`{name}`)"
        if fresh
        else _name_of(name)
    )
    around = json.dumps(
        codec.prompt.template if codec.prompt else codec.prefix + SOURCE,
        ensure_ascii=False,
    )
    front = ModelCardData(
        license=licence or "unknown",
        base_model=None if fresh or Path(name).is_dir() else name,
        datasets=[source.partition(":")[0]] if is_hub_name(source) else None,
        library_name="pipedec" if pipelined else "transformers",
        pipeline_tag="text-generation",
        tags=[
            checkpoint.model.config.model_type,
            "pipedec",
            *["pipelined-decoding"] * pipelined,
        ],
    )
    card = ModelCard.from_template(
        front,
        template_path=str(Path(__file__).with_suffix(".md")),
        family=backbone.name,
        pipelined=pipelined,
        auto_class=backbone.auto_class,
        size=f"{checkpoint.model.num_parameters() / 1e6:.1f} M parameters",
        start=start,
        examples=many(examples, "example"),
        teacher=_name_of(teacher) if teacher else "",
        data=escaped(source if is_hub_name(source) else Path(source).name),
        level=to_builtins(used)["segmentation"]["level"],
        around=escaped(around),
        chat=codec.prompt is not None and codec.prompt.chat,
        most=f"{codec.max_source_tokens:,}",
        # As a string of Python. The date in a chat template is always the same.
        prompt=ascii(prompt_text(checkpoint.tokenizer, used.prompt, chat=used.chat))
        if used and backbone.prompted
        else "",
        licence=licence,
        fresh=fresh,
        sheets="\n".join(map(markdown, training_sheets(checkpoint, record))),
    )
    return f"{card}\n"


def _name_of(model: str) -> str:
    """The name of a model's folder, or of a hub model."""
    return escaped(real(model).name if Path(model).is_dir() else model)


def training_sheets(checkpoint: Checkpoint, record: Mapping[str, Any]) -> list[Sheet]:
    """The settings of a training, its scores, and the versions of the software."""
    from pipedec_cli.metrics.scoring import dev_measure

    asked, result = record["settings"], record["result"]
    settings = (
        asked | asked["training"] | to_builtins(checkpoint.settings)["segmentation"]
    )
    measure = dev_measure(settings["level"])
    metric = measure.headline[measure.primary]
    against = ", against the teacher" if asked.get("teacher") else ""
    left_out = (*_LEFT_OUT, "epochs") if settings.get("max_steps") else _LEFT_OUT
    weights, best = "", result.get("best_by")
    if (
        update := result.get("weights_update")
    ) is not None:  # an older training.json has none
        why = f"the best by {best.replace('_', ' ')}" if best else "the last"
        weights = f"{update:,} of {result['updates']:,}, {why}"
    tables = {
        "Settings": {
            name: to_json([one["name"] for one in value] if name == "fields" else value)
            for name, value in settings.items()
            if name not in left_out
        },
        "Scores": {
            "training loss per token, over all updates": number(
                "{:.3f}", result["loss"]
            ),
            "dev loss per token": number("{:.3f}", result.get("dev_loss")),
            f"dev {metric}{against}": points(result.get("dev_score")),
            "updates made by then": count(result.get("dev_update")),
            "updates that the weights had, of all": weights,
        },
        "Versions": {
            package: version or "" for package, version in record["versions"].items()
        },
    }
    return [
        Sheet(title, ("",), one_section(rows.items())) for title, rows in tables.items()
    ]


def licence_of(name: str) -> str | None:
    """The licence that the card of a local folder or of a hub model names; None if it names none."""
    from huggingface_hub import ModelCard

    with suppress(
        Exception
    ):  # no file, no text, any error of the hub or the network: the training is done
        card = Path(name) / CARD if Path(name).is_dir() else name
        licence = ModelCard.load(card, ignore_metadata_errors=True).data.license
        return (
            licence if re.fullmatch(r"(?!other|unknown)[\w.-]{1,40}", licence) else None
        )
    return None
