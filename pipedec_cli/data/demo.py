"""Demo data: a few facts in, a sentence for each out, so that what a model says can be counted as right or wrong.

A source such as ``Talora; kind: ship; cargo: salt; crew: four`` has one right target: its facts in their order, each
in the sentence that its kind and attribute ask for. The words are few and the sentences short, so that a small
T5 learns them from nothing within minutes. Everything and everyone is made up.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
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


# For each attribute of a kind the sentence that says it, ``{}`` where its value stands, and the values, a word each.
# Within a kind no two sentences begin alike: one that has only begun already tells the next one its place. Nor do two
# attributes share a value, which spares a small model learning to bind the two together.
_KINDS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "ship": {
        "kind": ("{} is a ship of the old fleet.", _NAMES),
        "crew": ("About {} people work on its long deck.", _NUMBERS),
        "cargo": ("Most of its trips bring {} to market.", "salt wool tea glass rice silk"),
        "home": ("Harbour lights of {} welcome it every evening.", _TOWNS),
        "colour": ("Bright {} paint covers its wooden hull.", _COLOURS),
        "masts": ("Its tall masts were cut from strong {}.", "oak pine cedar elm ash larch"),
        "weather": ("Even in heavy {} it finds its way.", "fog rain snow hail sleet surf"),
    },
    "bird": {
        "kind": ("{} is a bird with a clear song.", _NAMES),
        "colour": ("Soft {} feathers cover its back and wings.", _COLOURS),
        "food": ("Every day it looks for {} to eat.", "berries seeds snails moths fish nuts"),
        "nest": ("Its nest lies hidden high among the {}.", "cliffs reeds pines ferns roofs"),
        "eggs": ("In spring it lays {} small round eggs.", _NUMBERS),
        "winter": ("Winter winds carry it south to {}.", _TOWNS),
        "hour": ("At {} its voice carries over the hills.", "dawn dusk noon midnight sunset"),
    },
    "planet": {
        "kind": ("{} is a planet with a quiet sky.", _NAMES),
        "colour": ("Thick {} clouds drift over its wide plains.", _COLOURS),
        "moons": ("Around it move {} small and silent moons.", _NUMBERS),
        "ground": ("Most of the ground there is {}.", "ice sand stone clay moss dust"),
        "scent": ("Plants there smell of {} after the rain.", "mint honey lemon smoke pepper"),
        "observatory": ("Watchers in {} were the first to see it.", _TOWNS),
        "shape": ("Seen from afar it looks like a {}.", "pearl coin lantern button plum"),
    },
    "station": {
        "kind": ("{} is a station on the mountain line.", _NAMES),
        "platforms": ("Trains stop there at {} wide platforms.", _NUMBERS),
        "doors": ("Tall {} doors open onto the main hall.", _COLOURS),
        "shop": ("Travellers can buy {} near the entrance.", "coffee flowers books maps bread"),
        "walls": ("Old walls of {} keep the hall cool.", "brick granite marble timber"),
        "line": ("From here the line runs on to {}.", _TOWNS),
        "statue": ("A bronze {} stands before the clock tower.", "lion horse eagle swan bear"),
    },
}


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
        chosen = ["kind", *sorted(drawn, key=attributes.index)]
        facts = {name: rng.choice(_KINDS[kind][name][1].split()) for name in chosen}
        source = "; ".join(
            [facts["kind"], f"kind: {kind}", *(f"{name}: {facts[name]}" for name in chosen[1:])]
        )
        made.setdefault(
            source, {"id": f"demo-{len(made) + 1}", "source": source, "target": _say(kind, facts)}
        )
    return list(made.values())


def check_facts(prediction: str, source: str) -> dict[str, int]:
    """Count the facts that a prediction states, in whatever order, by its sentences to the letter, white space aside.

    Returns:
        ``right``: facts of the source that are stated, once or more; ``wrong``: sentences that state no fact of the
        source; ``missing``: facts of the source that are not stated. Right and missing add up to the facts.

    Raises:
        ValueError: the source is not one of `make_demo`'s.
    """
    name, *fields = source.split("; ")
    facts = {attribute: value for attribute, _, value in (field.partition(": ") for field in fields)}
    try:
        due = set(_sentences(_say(facts.pop("kind"), {"kind": name} | facts)))
    except KeyError:
        raise ValueError(f"not a source of the demo data: {source!r}") from None
    said = _sentences(prediction)
    right = len(due.intersection(said))
    return {
        "right": right,
        "wrong": sum(sentence not in due for sentence in said),
        "missing": len(due) - right,
    }


def _say(kind: str, facts: Mapping[str, str]) -> str:
    return " ".join(_KINDS[kind][attribute][0].format(value) for attribute, value in facts.items())


def _sentences(text: str) -> list[str]:
    """The sentences of a text, white space evened out; what stands after the last full stop is one too."""
    parts = (" ".join(part.split()) for part in re.findall(r"[^.]+\.?", text))
    return [part for part in parts if part]
