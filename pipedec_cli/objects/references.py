"""Where a reference within a JSON Schema leads to."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from pipedec_cli.data.fields import Keys
from pipedec_cli.objects.notes import blame, refuse


def target_of(reference: Any, schema: Any, keys: Keys) -> Any:
    """The part of the schema that a reference such as ``#/$defs/name`` names.

    A UserError for a reference that leads nowhere: it stands in the part at the path
    `keys`. One within the file refuses the whole schema, another one this part alone.
    """
    path = str(reference)
    target = None
    if path == "#" or path.startswith("#/"):
        steps = unquote(path).split("/")[1:]
        names = (step.replace("~1", "/").replace("~0", "~") for step in steps)
        target = inner_of(schema, names)
    if not isinstance(target, dict):
        fault = f"refers to {reference!r}, which is no path in this file"
        report = blame if path.startswith("#") else refuse
        report(keys, fault, "put it into $defs and refer to #/$defs/NAME")
    return target


def inner_of(schema: Any, steps: Iterable[str]) -> Any:
    """What stands within a schema at the end of some steps.

    None if there is nothing.
    """
    for step in steps:
        schema = schema.get(step) if isinstance(schema, dict) else None
    return schema
