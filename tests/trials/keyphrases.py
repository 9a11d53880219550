"""The keyphrase scripts of Chan et al. and of Chen et al., as plain readings of their rules, beside our chan2019.

``python -m tests.trials.keyphrases FILE...`` prints docs/metrics.md's table for JSON
lines with `source` and `keyphrases`. The predictions are made up: of the right answers,
each kept with probability 1/2, and of five runs of 1 to 3 words of the source, in
random order; one document in five has an empty phrase, as where a model writes two
separators in a row.
"""

import json
import random
import re
import sys
from collections import defaultdict
from itertools import filterfalse
from pathlib import Path
from typing import NamedTuple

from nltk.stem.porter import PorterStemmer

from pipedec_cli.metrics.keyphrases import Chan2019
from pipedec_cli.metrics.measure import score_examples
from tests.metrics.documents import example

Values = dict[str, float]
_STEM = PorterStemmer().stem


class Document(NamedTuple):
    """A document as the published files have it: words between spaces, and `;` between phrases on one line."""

    source: str
    targets: str
    predictions: str


def chan(documents):
    """Chan et al., ACL 2019: an empty line is one empty phrase, which is absent; a word `,` `.` `<unk>` drops a prediction."""

    def phrases(line, *, predicted):
        kept = []
        for phrase in line.strip().split(";"):
            words = phrase.split(" ")
            if predicted and {",", ".", "<unk>"} & set(words):
                continue
            stems = [_STEM(word.strip().lower()) for word in words]
            kept.append(" ".join(stems))
        return kept

    return _scores(documents, phrases)


def chen(documents):
    """Chen et al., ACL 2020: a phrase ends at `/` too, empty ones are none; only `<unk>` drops a prediction."""

    def phrases(line, *, predicted):
        kept = []
        for phrase in line.replace("/", ";").split(";"):
            stems = " ".join(map(_STEM, phrase.split()))
            if stems and not (predicted and "<unk>" in stems):
                kept.append(stems)
        return kept

    return _scores(documents, phrases)


def ours(documents):
    """The protocol chan2019, for data that are tokenised already."""
    items = []
    for number, (source, right, made) in enumerate(documents):
        phrases = made.split(";"), right.split(";")
        item = example(*phrases, source=source, name=str(number))
        items.append(item)
    values = score_examples(items, Chan2019(pretokenized=True)).values
    return {name: values[name] or 0.0 for name in Chan2019.headline}


def _scores(documents, phrases):
    """F1 of the mean precision and the mean recall over all documents, which both scripts take."""
    parts = defaultdict[str, list[tuple[float, float]]](list)
    for document in documents:
        source = f" {' '.join(map(_STEM, document.source.lower().split()))} "
        predicted = list(dict.fromkeys(phrases(document.predictions, predicted=True)))
        right = set(phrases(document.targets, predicted=False))

        def is_present(phrase, source=source):
            return bool(phrase) and f" {phrase} " in source

        for kind, chosen in (("present", filter), ("absent", filterfalse)):
            made = [*chosen(is_present, predicted)]
            wanted = {*chosen(is_present, right)}
            for cut, first in (("5", 5), ("M", len(made))):
                pair = _precision_and_recall(made[:first], wanted, first)
                parts[f"{kind}_f1@{cut}"].append(pair)
    return {name: _f1(parts[name]) for name in Chan2019.headline}


def _precision_and_recall(made, wanted, count):
    """Of phrases of which so many count as made, however many there are."""
    hits = len(wanted.intersection(made))
    precision = hits / count if made else 0.0
    recall = hits / len(wanted) if wanted else 0.0
    return precision, recall


def _f1(pairs):
    """In per cent."""
    precisions, recalls = zip(*pairs, strict=True)
    p = 100 * sum(precisions) / len(pairs)
    r = 100 * sum(recalls) / len(pairs)
    return 2 * p * r / (p + r) if p + r else 0.0


SCRIPTS = {"Chan et al.": chan, "Chen et al.": chen, "`chan2019`": ours}


def made_up(rows, seed=0):
    """Documents with predictions that are partly right, each word and punctuation mark between spaces."""
    chance = random.Random(seed)
    documents = []
    for row in rows:
        words = _words(str(row["source"]))
        right = [" ".join(_words(phrase)) for phrase in row["keyphrases"]]
        starts = [chance.randrange(len(words)) for _ in range(5)]
        predicted = [phrase for phrase in right if chance.random() < 0.5]
        for start in starts:
            end = start + chance.randint(1, 3)
            predicted.append(" ".join(words[start:end]))
        if chance.random() < 0.2:
            predicted.append("")
        chance.shuffle(predicted)
        documents.append(
            Document(" ".join(words), ";".join(right), ";".join(predicted))
        )
    return documents


def _words(text):
    return re.findall(r"\w+(?:[-'/.]\w+)*|[^\w\s;]", text.lower())


def cleaned(documents):
    """Without phrases that hold a `/` or a word `,` or `.`, and without documents that have no phrase left on a side."""

    def clean(line):
        kept = []
        for phrase in line.split(";"):
            is_odd = "/" in phrase or {",", "."} & set(phrase.split())
            if phrase and not is_odd:
                kept.append(phrase)
        return ";".join(kept)

    kept = []
    for document in documents:
        targets = clean(document.targets)
        predictions = clean(document.predictions)
        if targets and predictions:
            kept.append(Document(document.source, targets, predictions))
    return kept


def main(files):
    """Print the table."""
    print("| documents | script |", " | ".join(Chan2019.headline.values()), "|")
    print("|---|---|" + "---|" * len(Chan2019.headline))
    for file in files:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
        whole = made_up(map(json.loads, lines))
        _print_rows("as they are", whole)
        _print_rows("cleaned", cleaned(whole))


def _print_rows(name, documents):
    """A row for each script."""
    for script, run in SCRIPTS.items():
        cells = [f"{value:.2f}" for value in run(documents).values()]
        print(f"| {len(documents):,} {name} | {script} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main(sys.argv[1:])
