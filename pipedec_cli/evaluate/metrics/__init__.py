"""The scoring protocols of papers, a file each."""

from typing import Final, Literal

Task = Literal["summarization", "keyphrases", "multispan", "fields"]
ProtocolName = Literal["rouge", "chan2019", "meng2017", "multispanqa", "fields"]

#: The task that each protocol scores; the first protocol of a task is its default.
TASK_OF: Final[dict[str, Task]] = {
    "rouge": "summarization",
    "chan2019": "keyphrases",
    "meng2017": "keyphrases",
    "multispanqa": "multispan",
    "fields": "fields",
}
