"""Demo data: a few facts in, a sentence for each out, so that what a model says can be counted as right or wrong.

A source such as ``Talora; kind: ship; cargo: salt; crew: four`` has one right target: its facts in their order, each
in the sentence that its kind and attribute ask for. The words are few and the sentences short, so that a small
T5 learns them from nothing within minutes. Everything and everyone is made up.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

#: The most and the fewest facts of a record; its kind, the first of them, among them.
FEWEST_FACTS: Final = 3
MOST_FACTS: Final = 7


@cache
def _kinds() -> Mapping[str, Mapping[str, tuple[str, Sequence[str]]]]:
    """For each attribute of a kind of thing the sentence that says it, and the values that it may have."""
    content = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {
        kind: {
            name: (sentence, content["words"].get(words, words).split())
            for name, (sentence, words) in attributes.items()
        }
        for kind, attributes in content["kinds"].items()
    }


def make_demo(n: int, seed: int) -> list[dict[str, Any]]:
    """Make n objects with ``id``, ``source`` and ``target``, up to some tens of thousands, no two with the same source.

    The same seed gives the same records on every machine, and the first k of n are those of k.
    """
    rng = random.Random(seed)  # noqa: S311 - chance, not secrecy
    kinds = _kinds()
    made: dict[str, dict[str, Any]] = {}
    while len(made) < n:
        kind = rng.choice(tuple(kinds))
        attributes = [name for name in kinds[kind] if name != "kind"]
        # One order for a kind: which fact a sentence is to state is then a question of what the source holds alone.
        drawn = rng.sample(attributes, rng.randint(FEWEST_FACTS, MOST_FACTS) - 1)
        chosen = ["kind", *sorted(drawn, key=attributes.index)]
        facts = {name: rng.choice(kinds[kind][name][1]) for name in chosen}
        named = (f"{name}: {facts[name]}" for name in chosen[1:])
        source = "; ".join([facts["kind"], f"kind: {kind}", *named])
        example = {"id": f"demo-{len(made) + 1}", "source": source, "target": _say(kind, facts)}
        made.setdefault(source, example)
    return list(made.values())


def check_facts(prediction: str, source: str) -> dict[str, int]:
    """Count the facts that a prediction states, in whatever order, by its sentences to the letter, white space aside.

    ``right`` are the facts of the source that are stated, once or more, ``missing`` those that are not, and ``wrong``
    the sentences that state no fact of the source. A source that is not of `make_demo` is a ValueError.
    """
    name, *fields = source.split("; ")
    facts = {attribute: value for attribute, _, value in (field.partition(": ") for field in fields)}
    try:
        due = set(_sentences(_say(facts.pop("kind"), {"kind": name} | facts)))
    except KeyError:
        raise ValueError(f"not a source of the demo data: {source!r}") from None
    said = _sentences(prediction)
    right, wrong = len(due.intersection(said)), sum(sentence not in due for sentence in said)
    return {"right": right, "wrong": wrong, "missing": len(due) - right}


def _say(kind: str, facts: Mapping[str, str]) -> str:
    return " ".join(_kinds()[kind][attribute][0].format(value) for attribute, value in facts.items())


def _sentences(text: str) -> list[str]:
    """The sentences of a text, white space evened out; what stands after the last full stop is one too."""
    parts = (" ".join(part.split()) for part in re.findall(r"[^.]+\.?", text))
    return [part for part in parts if part]
