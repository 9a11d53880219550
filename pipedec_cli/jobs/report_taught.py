"""A report on a model that was taught to answer questions: it is compared with the model that it was before.

Its data are one set: records with the JSON Schema of their objects, as `segment` takes
sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.resumable import Artifact
from pipedec_cli.data.sets import record_sets, refuse_sets
from pipedec_cli.data.trained import require_model, trained_as
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.loading import find_model
from pipedec_cli.jobs.report_settings import ReportSettings

if TYPE_CHECKING:
    from pipedec_cli.decoding.decoder import Decoder


def is_taught(settings: ReportSettings) -> bool:
    """Whether the model of a report was taught to answer questions."""
    name = find_model(settings.model, settings.place)
    return bool(trained_as(name).get("questions"))


def check_taught(settings: ReportSettings, others: Sequence[str]) -> None:
    """Refuse what a comparison of questions cannot have. `others` are the entries besides the two models."""
    what = "is not for a model that was taught to answer questions"
    settings.refuse("delays", what=what)
    if others:
        what = f"--compare {', '.join(others)} {what}"
        raise UserError(what, todo="leave it out")
    require_model(untrained(settings))
    _schema(settings)


def untrained(settings: ReportSettings) -> str:
    """The model that was taught, as it was before: the baseline of the settings, or what the training started from."""
    if settings.baseline is not None:
        return settings.baseline
    name = find_model(settings.model, settings.place)
    before: str | None = Artifact.training(Path(name)).settings.get("model")
    if before is None:
        what = f"nothing says which model {name} was before it was taught"
        raise UserError(what, todo="give it as --baseline")
    return before


def asked_settings(
    settings: ReportSettings, usual: GenerateSettings
) -> GenerateSettings:
    """The settings of `generate` by which the taught model answers the keys of the data's schema."""
    return replace(usual, fields=_schema(settings), confidence=True)


def in_one_go(untaught: Decoder, chat: bool) -> Decoder | None:
    """The model that was taught as it was, which writes an object as JSON in one go; None, with a warning, if its schema has no grammar."""
    from pipedec_cli.decoding.blind import plan_of
    from pipedec_cli.decoding.whole import whole_decoder

    try:
        return whole_decoder(untaught, plan_of(untaught).rows, chat=chat)
    except UserError as error:
        log.warning(f"{error.where} {error.what}; it is left out")
        return None


def _schema(settings: ReportSettings) -> str:
    """The file of the data's schema; a UserError if there is none."""
    if settings.data is None:
        what = "a model that was taught to answer questions is compared on one set"
        todo = "give its file or folder, with its schema beside it"
        raise UserError(what, todo=todo)
    refuse_sets(settings.data)
    (only,) = record_sets(settings.data)
    if only.schema is None:
        todo = f"write its JSON Schema to {only.schema_place}"
        raise UserError("has no schema", where=settings.data, todo=todo)
    return only.schema
