"""Text generation from a context, pipelined: several phrases or sentences are written at the same time.

From Python::

    import pipedec_cli as pipedec

    for result in pipedec.extract(["The Mill has Thai food."], "name", model="MODEL"):
        print(result.value, result.confidence)

    decoder = pipedec.load("pipedec-workspace/models/pipelined")
    for result in decoder.texts(["name[The Mill], food[Chinese]"]):
        print(result.text, result.steps, result.tokens)

`extract` gives an `Extraction` for each text. `load` gives a `Decoder`. Its `texts`
yields a `Generated` for each source; its `run` yields the steps of the grid, too.
`read_report` gives the report that `pipedec report` wrote. A notebook shows all three.
Names are imported when they are first used: importing this package imports no torch.
"""

# Nothing is imported here: a signal may come by then; see `__main__.py`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pipedec_cli.data.errors import UserError
    from pipedec_cli.data.records import Generated
    from pipedec_cli.decoding.decisions import Decision
    from pipedec_cli.decoding.decoder import Decoder, load
    from pipedec_cli.decoding.exact import ExactDecoder
    from pipedec_cli.jobs.decide import Decided, decide
    from pipedec_cli.jobs.extract import Extraction, extract
    from pipedec_cli.jobs.pages import SavedReport, read_report
    from pipedec_cli.objects.questions import Choice, Option, Predicate, Score, Text
    from pipedec_cli.pipeline.decode import Admitted, Finished, Stepped

#: The module that defines each public name.
_HOMES: "Final" = {
    **dict.fromkeys(("Admitted", "Finished", "Stepped"), "pipedec_cli.pipeline.decode"),
    **dict.fromkeys(("Decoder", "load"), "pipedec_cli.decoding.decoder"),
    **dict.fromkeys(("SavedReport", "read_report"), "pipedec_cli.jobs.pages"),
    **dict.fromkeys(
        ("Choice", "Option", "Predicate", "Score", "Text"),
        "pipedec_cli.objects.questions",
    ),
    **dict.fromkeys(("Decided", "decide"), "pipedec_cli.jobs.decide"),
    **dict.fromkeys(("Extraction", "extract"), "pipedec_cli.jobs.extract"),
    "Decision": "pipedec_cli.decoding.decisions",
    "ExactDecoder": "pipedec_cli.decoding.exact",
    "Generated": "pipedec_cli.data.records",
    "UserError": "pipedec_cli.data.errors",
}

__all__ = [
    "Admitted",
    "Choice",
    "Decided",
    "Decision",
    "Decoder",
    "ExactDecoder",
    "Extraction",
    "Finished",
    "Generated",
    "Option",
    "Predicate",
    "SavedReport",
    "Score",
    "Stepped",
    "Text",
    "UserError",
    "decide",
    "extract",
    "load",
    "read_report",
]


def __getattr__(name: str) -> "Any":
    """A public name, whose module is imported now; Python calls this for a name that is not here."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
