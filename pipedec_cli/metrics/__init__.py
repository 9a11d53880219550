"""The scoring protocols of papers, a file each, and the tasks that they score."""

from typing import TYPE_CHECKING, Final, Literal

Task = Literal["summarization", "keyphrases", "multispan", "fields"]
#: The task of each protocol; the first protocol of a task is its default. The measures
#: are in `scoring`: numpy and the packages of papers take long to import.
TASK_OF: Final[dict[str, Task]] = {
    "rouge": "summarization",
    "chan2019": "keyphrases",
    "meng2017": "keyphrases",
    "multispanqa": "multispan",
    "fields": "fields",
}

if TYPE_CHECKING:
    ProtocolName = str
else:  # what settings offer and check
    ProtocolName = Literal[tuple(TASK_OF)]
