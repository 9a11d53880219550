"""KP20k (Meng et al. 2017), KPTimes (Gallina et al. 2019), and any keyphrase set in one of their layouts.

Layouts, one object an example (docs/datasets.md says where each is published):

- KP20k: ``title``, ``abstract``, and ``keyword``, one string with ``;`` between phrases (memray/seq2seq-keyphrase), or
  ``keywords``, a list or such a string (``KP_DATASET_FIELDS`` in memray/OpenNMT-kpg-release).
- KPTimes (ygorg/KPTimes): ``title``, ``abstract`` (the body), and ``keyword``, a list of lists: the variants of each
  keyphrase, the main one first; elsewhere ``;`` strings.
- The hub's taln-ls2n copies: ``title``, ``abstract``, ``keyphrases`` (a list). The hub's midas copies: ``document`` (a
  list of tokens), ``extractive_keyphrases`` and ``abstractive_keyphrases`` (lists).
- Any other set: ``source``, or ``title`` with ``abstract``, ``body`` or ``text``; and phrases in one of these fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipedec_cli.data.importers.layout import Example, Fields, parts, rows_at
from pipedec_cli.data.records import SplitName

SEPARATOR = ";"


def read(location: str, split: SplitName | None) -> Iterator[Example]:
    """The documents of a file, a folder or a hub data set in one of the layouts above.

    The source is the title and the body with a space between them, as the evaluation of Chan et al. (2019) reads
    them; the target the phrases in their order, empty ones left out. Where a keyphrase has variants the first is
    the target, and all of them are kept in the field ``keyphrase_variants``.
    """
    for fields in map(Fields, rows_at(location, split)):
        phrases, extra = _phrases(fields)
        yield fields.example(_source(fields), phrases, extra=extra)


def split_phrases(text: str, separator: str = SEPARATOR) -> tuple[str, ...]:
    """The phrases of one string; an empty one is no phrase."""
    return parts(text.split(separator))


def _source(fields: Fields) -> str:
    name = fields.first_of("abstract", "body", "text", "document", "source")
    tokens = fields.strings(name, "a list of tokens") if name == "document" else (fields.text(name),)
    title = fields.text("title") if name != "source" and fields.has("title") else ""
    return " ".join(filter(None, (title.strip(), " ".join(tokens).strip())))


def _phrases(fields: Fields) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The keyphrases, and all of their variants as a further field where one has several."""
    name = fields.first_of("keyphrases", "keywords", "keyword", "extractive_keyphrases")
    if name == "extractive_keyphrases":
        absent = fields.strings("abstractive_keyphrases") if fields.has("abstractive_keyphrases") else ()
        return parts((*fields.strings(name), *absent)), {}
    value = fields.values[name]
    if isinstance(value, str):
        return split_phrases(value), {}
    if not (isinstance(value, list) and value and all(isinstance(item, list) for item in value)):
        return parts(fields.strings(name, "a list of strings, or one string with ';' between phrases")), {}
    for place, group in enumerate(value, start=1):
        for item in group:
            if not isinstance(item, str):
                fields.refuse(name, "a list of strings, the variants of a keyphrase", item, place)
    groups = [variants for variants in map(parts, value) if variants]
    several = any(len(variants) > 1 for variants in groups)
    extra = {"keyphrase_variants": [list(variants) for variants in groups]} if several else {}
    return tuple(variants[0] for variants in groups), extra
