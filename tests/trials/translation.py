"""Texts of sentences in English and German, made by a small grammar: `python -m tests.trials.translation FOLDER`.

It writes train.jsonl and test.jsonl. A text has 6 to 12 sentences. The order of words
differs between the languages, and German has cases and genders.
"""

import json
import random
import sys
from pathlib import Path

#: A person or a thing: English, German, its gender.
_PEOPLE = "teacher Lehrer m,doctor Ärztin f,child Kind n,farmer Bauer m,baker Bäckerin f,girl Mädchen n,pilot Pilot m,judge Richterin f"
_THINGS = "book Buch n,letter Brief m,lamp Lampe f,house Haus n,apple Apfel m,flower Blume f,picture Bild n,table Tisch m,clock Uhr f"
_VERBS = "buys kauft,sees sieht,paints malt,finds findet,sells verkauft,carries trägt,loses verliert,needs braucht,hides versteckt"
_WHEN = "today:heute,on Monday:am Montag,in the morning:am Morgen,every day:jeden Tag,in winter:im Winter,at night:in der Nacht"
_LIKE = "old alt,new neu,small klein,red rot,heavy schwer,beautiful schön,cheap billig,green grün"
_THE = {"m": ("der", "den"), "f": ("die", "die"), "n": ("das", "das")}
_AN = {"m": "einen", "f": "eine", "n": "ein"}
_END = {"m": "en", "f": "e", "n": "es"}


def sentence(draw: random.Random) -> tuple[str, str]:
    """A sentence in both languages."""
    person, mensch, kind = draw.choice(_PEOPLE.split(",")).split()
    thing, ding, of = draw.choice(_THINGS.split(",")).split()
    verb, tut = draw.choice(_VERBS.split(",")).split()
    like, wie = draw.choice(_LIKE.split(",")).split()
    when, wann = draw.choice(_WHEN.split(",")).split(":")
    if draw.random() < 0.5:
        ending = "en" if of == "m" else "e"
        english, german = f"the {like} {thing}", f"{_THE[of][1]} {wie}{ending} {ding}"
    else:
        english, german = f"one {like} {thing}", f"{_AN[of]} {wie}{_END[of]} {ding}"
    said = f"{when[0].upper()}{when[1:]}, the {person} {verb} {english}."
    return said, f"{_THE[kind][0].capitalize()} {mensch} {tut} {wann} {german}."


def main(folder: Path, train: int = 20_000, test: int = 200) -> None:
    """Write the texts, each with its sentences as items of the target."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    for name, count in (("train", train), ("test", test)):
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for _ in range(count):
                english, german = zip(
                    *(sentence(draw) for _ in range(draw.randint(6, 12))), strict=True
                )
                line = {"source": " ".join(english), "target": " ".join(german)}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
