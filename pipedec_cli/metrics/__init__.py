"""The scoring protocols of papers, a file each, and the one list of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from pipedec_cli.metrics.measure import Measure

Task = Literal["summarization", "keyphrases", "multispan", "fields"]


class Protocol(NamedTuple):
    """The task that a protocol scores, and the module of this folder and the class in it that do."""

    task: Task
    module: str
    measure: str


#: The protocols by name; the first protocol of a task is its default.
PROTOCOLS: Final = {
    "rouge": Protocol("summarization", "rouge", "Rouge"),
    "chan2019": Protocol("keyphrases", "keyphrases", "Chan2019"),
    "meng2017": Protocol("keyphrases", "keyphrases", "Meng2017"),
    "multispanqa": Protocol("multispan", "multispan", "MultiSpanQA"),
    "fields": Protocol("fields", "fields", "Fields"),
}
TASK_OF: Final = {name: protocol.task for name, protocol in PROTOCOLS.items()}

if TYPE_CHECKING:
    ProtocolName = str
else:  # what settings offer and check
    ProtocolName = Literal[tuple(PROTOCOLS)]


def measure_of(name: str) -> type[Measure]:
    """The class of a protocol. It is imported late: numpy and the packages of papers take long."""
    protocol = PROTOCOLS[name]
    module = import_module(f"{__name__}.{protocol.module}")
    measure: type[Measure] = getattr(module, protocol.measure)
    return measure
