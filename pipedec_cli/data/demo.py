"""Demo data: a few facts in, a sentence for each out, so that what a model says can be counted as right or wrong.

A source such as ``Talora; kind: ship; cargo: salt; crew: four`` has one right target: its facts in their order, each
in the sentence that its kind and attribute ask for. The words are few and the sentences short, so that a small
T5 learns them from nothing within minutes. Everything and everyone is made up.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

#: The most and the fewest facts of a record; its kind, the first of them, among them.
FEWEST_FACTS: Final = 3
MOST_FACTS: Final = 7

_NAMES: Final = (
    "Arvelo Belmira Corvane Daluna Elvora Faronel Galenta Hesmira Ilmara Jorvika "
    "Kelvora Lunaris Mirova Nalinda Orvello Palvira Quintara Rovena Selvana Talora"
)
_COLOURS: Final = "blue green red white grey golden purple black"
_NUMBERS: Final = "two three four five six seven eight nine"
_TOWNS: Final = "Velden Oslen Marrow Tarbek Lindal Norwell Essing Corwick"


@dataclass(frozen=True, slots=True)
class _Attribute:
    """What can be said of a thing of some kind, and how.

    Attributes:
        sentence: says it; ``{}`` is where the value stands.
        words: the values that it may have, a word each, with spaces between them.
    """

    sentence: str
    words: str

    @property
    def values(self) -> tuple[str, ...]:
        """The values that it may have."""
        return tuple(self.words.split())


# Within a kind no two sentences begin alike: one that has only begun already tells the next one its place. Nor do two
# attributes share a value, which spares a small model learning to bind the two together.
_KINDS: Final[Mapping[str, Mapping[str, _Attribute]]] = {
    "ship": {
        "kind": _Attribute("{} is a ship of the old fleet.", _NAMES),
        "crew": _Attribute("About {} people work on its long deck.", _NUMBERS),
        "cargo": _Attribute("Most of its trips bring {} to market.", "salt wool tea glass rice silk"),
        "home": _Attribute("Harbour lights of {} welcome it every evening.", _TOWNS),
        "colour": _Attribute("Bright {} paint covers its wooden hull.", _COLOURS),
        "masts": _Attribute("Its tall masts were cut from strong {}.", "oak pine cedar elm ash larch"),
        "weather": _Attribute("Even in heavy {} it finds its way.", "fog rain snow hail sleet surf"),
    },
    "bird": {
        "kind": _Attribute("{} is a bird with a clear song.", _NAMES),
        "colour": _Attribute("Soft {} feathers cover its back and wings.", _COLOURS),
        "food": _Attribute("Every day it looks for {} to eat.", "berries seeds snails moths fish nuts"),
        "nest": _Attribute("Its nest lies hidden high among the {}.", "cliffs reeds pines ferns roofs"),
        "eggs": _Attribute("In spring it lays {} small round eggs.", _NUMBERS),
        "winter": _Attribute("Winter winds carry it south to {}.", _TOWNS),
        "hour": _Attribute("At {} its voice carries over the hills.", "dawn dusk noon midnight sunset"),
    },
    "planet": {
        "kind": _Attribute("{} is a planet with a quiet sky.", _NAMES),
        "colour": _Attribute("Thick {} clouds drift over its wide plains.", _COLOURS),
        "moons": _Attribute("Around it move {} small and silent moons.", _NUMBERS),
        "ground": _Attribute("Most of the ground there is {}.", "ice sand stone clay moss dust"),
        "scent": _Attribute("Plants there smell of {} after the rain.", "mint honey lemon smoke pepper"),
        "observatory": _Attribute("Watchers in {} were the first to see it.", _TOWNS),
        "shape": _Attribute("Seen from afar it looks like a {}.", "pearl coin lantern button plum"),
    },
    "station": {
        "kind": _Attribute("{} is a station on the mountain line.", _NAMES),
        "platforms": _Attribute("Trains stop there at {} wide platforms.", _NUMBERS),
        "doors": _Attribute("Tall {} doors open onto the main hall.", _COLOURS),
        "shop": _Attribute("Travellers can buy {} near the entrance.", "coffee flowers books maps bread"),
        "walls": _Attribute("Old walls of {} keep the hall cool.", "brick granite marble timber"),
        "line": _Attribute("From here the line runs on to {}.", _TOWNS),
        "statue": _Attribute("A bronze {} stands before the clock tower.", "lion horse eagle swan bear"),
    },
}


@dataclass(frozen=True, slots=True)
class FactCount:
    """How a prediction stands to the facts of its source.

    Attributes:
        right: facts of the source that are stated; one that is stated twice counts once.
        wrong: sentences that state no fact of the source.
        missing: facts of the source that are not stated.
    """

    right: int
    wrong: int
    missing: int

    def __add__(self, other: FactCount) -> FactCount:
        """The counts of two predictions together."""
        return FactCount(self.right + other.right, self.wrong + other.wrong, self.missing + other.missing)


def make_demo(n: int, seed: int) -> list[dict[str, Any]]:
    """Make records, no two of them with the same source: however they are split, no split knows another's.

    Args:
        n: how many; up to some tens of thousands.
        seed: the same seed gives the same records on every machine, and the first k of n are those of k.

    Returns:
        Objects with ``id``, ``source`` and ``target``, all strings.
    """
    rng = random.Random(seed)  # noqa: S311 - chance, not secrecy
    made: dict[str, dict[str, Any]] = {}
    while len(made) < n:
        kind = rng.choice(tuple(_KINDS))
        attributes = [name for name in _KINDS[kind] if name != "kind"]
        # One order for a kind: which fact a sentence is to state is then a question of what the source holds alone.
        drawn = rng.sample(attributes, rng.randint(FEWEST_FACTS, MOST_FACTS) - 1)
        chosen = sorted(drawn, key=attributes.index)
        facts = {"kind": rng.choice(_KINDS[kind]["kind"].values)} | {
            name: rng.choice(_KINDS[kind][name].values) for name in chosen
        }
        source = "; ".join([facts["kind"], f"kind: {kind}", *(f"{name}: {facts[name]}" for name in chosen)])
        made.setdefault(
            source, {"id": f"demo-{len(made) + 1}", "source": source, "target": _say(kind, facts)}
        )
    return list(made.values())


def check_facts(prediction: str, record: Mapping[str, Any]) -> FactCount:
    """Count the facts that a prediction states, in whatever order.

    A fact is stated by its sentence to the letter, white space aside.

    Args:
        prediction: the generated text.
        record: one of `make_demo`'s; only its ``source`` is read.

    Returns:
        The counts; right and missing add up to the facts of the source.

    Raises:
        ValueError: the source is not one of `make_demo`'s.
    """
    due = set(_sentences(_target(str(record["source"]))))
    said = _sentences(prediction)
    right = len(due.intersection(said))
    return FactCount(right, sum(sentence not in due for sentence in said), len(due) - right)


def _target(source: str) -> str:
    """The one right target of a source."""
    name, *fields = source.split("; ")
    facts = {attribute: value for attribute, _, value in (field.partition(": ") for field in fields)}
    try:
        return _say(facts.pop("kind"), {"kind": name} | facts)
    except KeyError:
        raise ValueError(f"not a source of the demo data: {source!r}") from None


def _say(kind: str, facts: Mapping[str, str]) -> str:
    return " ".join(_KINDS[kind][attribute].sentence.format(value) for attribute, value in facts.items())


def _sentences(text: str) -> list[str]:
    """The sentences of a text, white space evened out; what stands after the last full stop is one too."""
    parts = (" ".join(part.split()) for part in re.findall(r"[^.]+\.?", text))
    return [part for part in parts if part]
