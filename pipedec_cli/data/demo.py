"""Demo data: a source is a few facts, its target a sentence for each. A program can check what a model writes.

A source such as ``Talora; kind: ship; cargo: salt; crew: four`` has one right target:
its facts in order, each in the sentence of its kind and attribute. There are few words
and short sentences, so that a small T5 learns them from fresh weights within minutes.
All names are made up.
"""

import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

#: The number of facts of a record, with its kind, which is the first fact.
FEWEST_FACTS: Final = 3
MOST_FACTS: Final = 7


#: The sentence and the possible values of each attribute of a kind of thing.
_Attributes = Mapping[str, tuple[str, Sequence[str]]]


@cache
def _kinds() -> Mapping[str, _Attributes]:
    """The kinds of things, such as a ship, from demo.toml: the sentence and the possible values of each attribute."""
    file = Path(__file__).with_suffix(".toml")
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    kinds = {}
    for kind, attributes in content["kinds"].items():
        with_values = {}
        for name, (sentence, words) in attributes.items():
            # Several attributes may share a list of words, which has a name of its own.
            values = content["words"].get(words, words)
            with_values[name] = (sentence, values.split())
        kinds[kind] = with_values
    return kinds


def make_demo(n: int, seed: int) -> list[dict[str, Any]]:
    """Make n objects with ``id``, ``source`` and ``target`` and different sources; n may be some tens of thousands.

    The same seed gives the same records on every machine, and a larger n gives the same
    first records.
    """
    rng = random.Random(seed)  # noqa: S311 - chance, not secrecy
    kinds = _kinds()
    by_source: dict[str, dict[str, Any]] = {}
    while len(by_source) < n:
        kind = rng.choice(tuple(kinds))
        facts = _draw_facts(kinds[kind], rng)
        source = _source(kind, facts)
        if source not in by_source:
            by_source[source] = {
                "id": f"demo-{len(by_source) + 1}",
                "source": source,
                "target": _say(kind, facts),
            }
    return list(by_source.values())


def _draw_facts(attributes: _Attributes, rng: random.Random) -> dict[str, str]:
    """Draw a thing of a kind with these attributes: its own name, under ``kind``, then some attributes with a value each."""
    names = [name for name in attributes if name != "kind"]
    drawn = rng.sample(names, rng.randint(FEWEST_FACTS, MOST_FACTS) - 1)
    # Each kind has one order of attributes, so that the source alone decides the next
    # sentence.
    drawn.sort(key=names.index)
    facts = {}
    for name in ("kind", *drawn):
        _, values = attributes[name]
        facts[name] = rng.choice(values)
    return facts


def _source(kind: str, facts: Mapping[str, str]) -> str:
    parts = [facts["kind"], f"kind: {kind}"]
    for name, value in facts.items():
        if name != "kind":
            parts.append(f"{name}: {value}")
    return "; ".join(parts)


def check_facts(prediction: str, source: str) -> dict[str, int]:
    """Count the facts of the source that the prediction states, in any order; only white space may differ.

    ``right`` are the facts that it states once or more, ``missing`` the other facts,
    and ``wrong`` the sentences that state no fact of the source. Raises a ValueError
    for a source that `make_demo` did not make.
    """
    name, *fields = source.split("; ")
    facts = {"kind": name}  # the sentence of the attribute "kind" says the name
    kind = ""
    for field in fields:
        attribute, _, value = field.partition(": ")
        if attribute == "kind":
            kind = value
        else:
            facts[attribute] = value
    try:
        due = set(_sentences(_say(kind, facts)))
    except KeyError:
        raise ValueError(f"not a source of the demo data: {source!r}") from None
    said = _sentences(prediction)
    right = len(due.intersection(said))
    wrong = sum(sentence not in due for sentence in said)
    return {"right": right, "wrong": wrong, "missing": len(due) - right}


def _say(kind: str, facts: Mapping[str, str]) -> str:
    return " ".join(
        _kinds()[kind][attribute][0].format(value) for attribute, value in facts.items()
    )


def _sentences(text: str) -> list[str]:
    """The sentences of a text with single spaces; the text after the last full stop is one, too."""
    parts = (" ".join(part.split()) for part in re.findall(r"[^.]+\.?", text))
    return [part for part in parts if part]
