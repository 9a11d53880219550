"""What is refused, left out and passed over while a schema is read."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Keys, path_name

#: A warning names so many parts.
_NAMED: Final = 3


class UnwritableError(UserError):
    """No row can hold a part of a schema."""


class OnlyNullError(UnwritableError):
    """A part of a schema allows null alone."""


def refuse(
    keys: Keys, what: str, todo: str, kind: type[UserError] = UnwritableError
) -> NoReturn:
    """Raise the error of a part of a schema that no row can hold, which leaves out this part if it is optional.

    `keys` is the path to the part, `what` the fault and `todo` the remedy. The caller
    adds the file.
    """
    raise kind(f"{owner_of(keys)} {what}", todo=todo)


def blame(keys: Keys, what: str, todo: str) -> NoReturn:
    """Raise the error of a mistake, which refuses the whole schema."""
    refuse(keys, what, todo, UserError)


def owner_of(keys: Keys) -> str:
    """What a message calls the part of a schema at these keys."""
    return f"the property {path_name(keys)!r}" if keys else "the schema"


def some_of(faults: Sequence[str]) -> str:
    """The first of some faults, and the number of the others."""
    text = "; ".join(faults[:_NAMED])
    if len(faults) > _NAMED:
        text += f"; and {len(faults) - _NAMED:,} more"
    return text


@dataclass(frozen=True, slots=True)
class Notes:
    """What is noted of a schema. It counts, as references may fan out."""

    most: Mapping[str, int]  # of keys, choices and characters
    passed: set[str] = field(default_factory=set)  # keywords that no row is held to
    unknown: set[str] = field(default_factory=set)  # words that are no keywords
    left_out: list[UnwritableError] = field(default_factory=list)
    #: Required names that are no properties, and the properties that are meant.
    misnamed: dict[str, str] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)

    def count(self, what: str, more: int) -> None:
        """Count what was read. Raises a UserError for more than there may be."""
        self._counts[what] += more
        if self._counts[what] > self.most[what]:
            fault = f"has more than {self.most[what]:,} {what}"
            blame((), fault, "write a smaller schema")

    def leave_out(self, error: UnwritableError) -> None:
        """Note a part that is left out, which counts as a key."""
        self.left_out.append(error)
        self.count("keys", 1)
