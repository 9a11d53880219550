"""ROUGE-1, -2, -L and -Lsum F1 as the package ``rouge-score`` computes them: protocol ``rouge``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, ClassVar

from pipedec_cli.data.records import Generated
from pipedec_cli.metrics.measure import Measure, record_beside


@dataclass(frozen=True)
class Rouge(Measure):
    """ROUGE F1: the mean over the examples.

    With several references, the best F1 of each type.

    ROUGE-L compares whole texts. ROUGE-Lsum compares line by line: a line is a
    predicted or right segment, or a line of a reference without known segments.
    `stemmer` cuts tokens of more than three characters to their Porter stems.
    """

    stemmer: bool = True

    name: ClassVar[str] = "rouge"
    headline: ClassVar[Mapping[str, str]] = {
        "rouge1": "ROUGE-1",
        "rouge2": "ROUGE-2",
        "rougeL": "ROUGE-L",
        "rougeLsum": "ROUGE-Lsum",
    }
    primary: ClassVar[str] = "rougeL"
    columns: ClassVar[tuple[str, ...]] = tuple(headline)
    counted: ClassVar[tuple[str, ...]] = ("references",)
    unscorable: ClassVar[str] = (
        "ROUGE's tokenizer knows only a-z and 0-9, and would drop most of their references' letters"
    )

    @property
    def _settings(self) -> str:
        stem = "no"
        packages = f"rouge-score:{version('rouge-score')}"
        if self.stemmer:
            stem = "yes"
            packages += f"|nltk:{version('nltk')}"
        settings = f"score:f1|stem:{stem}|refs:best-per-type|lsum:segments|corpus:mean"
        return f"{settings}|{packages}"

    def statistics(self, example: Generated) -> tuple[float, ...] | None:
        """F1 of each type in [0, 1], and the number of references.

        None if no reference is scorable.
        """
        record = record_beside(example)
        references = record.references
        assert references, "an example without right answers is refused before"
        if not any(map(is_scorable, references)):
            return None
        whole, by_line = _scorers(self.stemmer)
        scores = whole.score_multi(references, example.text)
        by_line_of = {}  # the text with a segment a line, where segments are known
        if record.target_segments is not None:
            by_line_of[record.target] = _lines(record.target_segments)
        lines = [by_line_of.get(reference, reference) for reference in references]
        scores |= by_line.score_multi(lines, _lines(example.segments))
        values = (float(scores[metric].fmeasure) for metric in self.columns)
        return (*values, len(references))


def is_scorable(reference: str) -> bool:
    """Whether ROUGE's tokenizer, which keeps only a-z and 0-9, keeps at least half of a text's letters and digits.

    It drops nearly all of a Chinese or Greek text, and gives 0 even to a right
    prediction. A text without letters and digits is scorable.
    """
    characters = [character for character in reference.lower() if character.isalnum()]
    return 2 * sum(map(str.isascii, characters)) >= len(characters)


def _lines(segments: Iterable[str]) -> str:
    return "\n".join(" ".join(segment.split()) for segment in segments)


@lru_cache(maxsize=2)
def _scorers(stemmer: bool) -> list[Any]:
    """The package's scorers of whole texts and of lines, with its tokenizer and a stemmer with a cache."""
    from nltk.stem.porter import PorterStemmer
    from rouge_score import rouge_scorer, tokenize

    stems = None
    if stemmer:
        # Most of the tokenizer's time is stemming, and texts repeat their words.
        cached = lru_cache(maxsize=1 << 18)(PorterStemmer().stem)
        stems = SimpleNamespace(stem=cached)
    tokenizer = SimpleNamespace(tokenize=lambda text: tokenize.tokenize(text, stems))
    return [
        rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], tokenizer=tokenizer),
        rouge_scorer.RougeScorer(["rougeLsum"], tokenizer=tokenizer),
    ]
