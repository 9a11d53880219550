"""KP20k (Meng et al. 2017), KPTimes (Gallina et al. 2019), and any keyphrase set in one of their layouts.

Layouts, one object an example:

- KP20k as released (memray/seq2seq-keyphrase, ``kp20k_{training,validation,testing}.json``, JSON lines): ``title``,
  ``abstract``, and ``keyword``, one string with ``;`` between phrases. The hub's memray/keyphrase has ``keywords``, a
  list or such a string (``KP_DATASET_FIELDS`` in memray/OpenNMT-kpg-release).
- KPTimes (ygorg/KPTimes, ``scripts/to_jsonl.py`` and ``train_sample.jsonl``): ``title``, ``headline``, ``abstract`` (the
  body), and ``keyword``, a list of lists: the variants of each keyphrase, the main one first; elsewhere ``;`` strings.
- The hub's taln-ls2n/kp20k and taln-ls2n/kptimes: ``title``, ``abstract``, ``keyphrases`` (a list), ``prmu``.
- The hub's midas/kp20k, midas/kptimes and their like: ``document`` (a list of tokens), ``extractive_keyphrases`` and
  ``abstractive_keyphrases`` (lists).
- Any other set: ``source``, or ``title`` with ``abstract``, ``body`` or ``text``; and phrases in one of these fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pipedec_cli.data.importers.layout import Example, Fields, one_line
from pipedec_cli.data.importers.places import rows_at
from pipedec_cli.data.records import SplitName

SEPARATOR = ";"

_BODIES = ("abstract", "body", "text", "document", "source")
_PHRASES = ("keyphrases", "keywords", "keyword", "extractive_keyphrases")
_PHRASE_KINDS = "a list of strings, or one string with ';' between phrases"


def read(location: str, split: SplitName | None) -> Iterator[Example]:
    """The documents of a file, a folder or a hub data set in one of the layouts above.

    The source is the title and the body with a space between them, as the evaluation of Chan et al. (2019) reads
    them; the target the phrases in their order, empty ones left out. Where a keyphrase has variants the first is
    the target, and all of them are kept in the field ``keyphrase_variants``.
    """
    for row in rows_at(location, split):
        fields = Fields(row)
        phrases, extra = _phrases(fields)
        yield Example(
            where=fields.where,
            id=fields.identifier("id"),
            source=_source(fields),
            target=phrases,
            extra=extra,
        )


def split_phrases(text: str, separator: str = SEPARATOR) -> tuple[str, ...]:
    """The phrases of one string; an empty one is no phrase."""
    return _clean(text.split(separator))


def _clean(phrases: Iterable[str]) -> tuple[str, ...]:
    return tuple(phrase for phrase in map(one_line, phrases) if phrase)


def _source(fields: Fields) -> str:
    name = fields.first_of(_BODIES)
    tokens = fields.strings(name, "a list of tokens") if name == "document" else (fields.text(name),)
    body = " ".join(tokens)
    title = fields.text("title") if name != "source" and fields.has("title") else ""
    return " ".join(filter(None, (title.strip(), body.strip())))


def _phrases(fields: Fields) -> tuple[tuple[str, ...], dict[str, Any]]:
    name = fields.first_of(_PHRASES)
    if name == "extractive_keyphrases":
        absent = fields.strings("abstractive_keyphrases") if fields.has("abstractive_keyphrases") else ()
        return _clean((*fields.strings(name), *absent)), {}
    value = fields.values[name]
    if isinstance(value, str):
        return split_phrases(value), {}
    if isinstance(value, list) and value and all(isinstance(item, list) for item in value):
        return _main_variants(fields, name, value)
    return _clean(fields.strings(name, _PHRASE_KINDS)), {}


def _main_variants(
    fields: Fields, name: str, groups: list[list[Any]]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The first variant of each keyphrase, and all of them where some keyphrase has several."""
    for place, group in enumerate(groups, start=1):
        for item in group:
            if not isinstance(item, str):
                fields.refuse(name, "a list of strings, the variants of a keyphrase", item, place)
    cleaned = [variants for variants in map(_clean, groups) if variants]
    several = any(len(variants) > 1 for variants in cleaned)
    extra = {"keyphrase_variants": [list(variants) for variants in cleaned]} if several else {}
    return tuple(variants[0] for variants in cleaned), extra
