"""What one target of the fuzzer is, and the records that it is made of."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.checkpoints import TOLD
from tests.trials.counting import Count


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
ROWS: Final[list[dict[str, Any]]] = [
    {
        "id": str(n),
        "source": source,
        "target": " ".join(told),
        "keyphrases": list(told),
        "more": {"a": [None]},
    }
    for n, (source, told) in enumerate(TOLD * 2)
]


#: Of objects: a key of each kind, one in a part that is referred to, and one in an object within the object.
SCHEMA: Final[dict[str, Any]] = {
    "properties": {
        "name": {"type": ["string", "null"]},
        "stars": {"$ref": "#/$defs/S"},
        "tags": {"type": "array"},
        "place": {"type": "object", "properties": {"city": {"type": "string", "description": "a town"}}},
    },
    "$defs": {"S": {"enum": list(range(9))}},
}


def lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
