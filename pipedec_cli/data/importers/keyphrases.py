"""Data sets whose targets are keyphrases.

docs/datasets.md says where each is published and in which layouts: KP20k (Meng et al.
2017), KPTimes (Gallina et al. 2019) and the hub's copies of both.
"""

from collections.abc import Iterator
from typing import Any

from pipedec_cli.data.importers.layout import Example, Fields, parts, rows_at
from pipedec_cli.data.reading import checked
from pipedec_cli.data.records import SplitName


def keyphrases(location: str, split: SplitName | None) -> Iterator[Example]:
    """The documents of a file, a folder or a hub data set.

    The source is the title and the body with a space between them, as the evaluation of
    Chan et al. (2019) reads them. The target is the phrases in their order. If a
    keyphrase has variants, the first is the target; all of them are kept in the field
    ``keyphrase_variants``.
    """
    for fields in rows_at(location, split):
        phrases, extra = _phrases(fields)
        name = fields.first_of("abstract", "body", "text", "document", "source")
        body = " ".join(fields.texts(name)) if name == "document" else fields.text(name)
        title = ""
        if name != "source" and fields.has("title"):
            title = fields.text("title")
        source = f"{title.strip()} {body.strip()}".strip()
        yield fields.example(source, phrases, extra=extra)


def _phrases(fields: Fields) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The keyphrases of a document; and the field ``keyphrase_variants``, {} if no keyphrase has several.

    A row has them as a text with ``;`` between, as a list, as a list of lists of
    variants, or in two lists: those that stand in the text, and those that do not.
    """
    name = fields.first_of("keyphrases", "keywords", "keyword", "extractive_keyphrases")
    if name == "extractive_keyphrases":
        texts = fields.texts(name)
        if fields.has("abstractive_keyphrases"):
            texts += fields.texts("abstractive_keyphrases")
        return parts(texts), {}
    value = fields.values[name]
    if value and isinstance(value, list) and isinstance(value[0], list):
        lists = checked(value, tuple[tuple[str, ...], ...], fields.where, field=name)
        groups = [list(variants) for variants in map(parts, lists) if variants]
        phrases = tuple(first for first, *_ in groups)
        if any(len(variants) > 1 for variants in groups):
            return phrases, {"keyphrase_variants": groups}
        return phrases, {}
    text_or_list: Any = str | tuple[str, ...]
    given = checked(value, text_or_list, fields.where, field=name)
    return parts(given.split(";") if isinstance(given, str) else given), {}
