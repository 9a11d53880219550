"""Where sentences end: Punkt, trained on the data's own text, and the marks that need no training."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.scripts import SENTENCE_ENDERS, SPACELESS, SURE_CLOSERS, has_words

if TYPE_CHECKING:
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

#: Characters of text that Punkt is trained on; its statistics gain nothing from more, and it reads some 300,000 a second.
TRAINING_CHARACTERS: Final = 2_000_000

#: Abbreviations that are no domain's own. Training misses those that a small file has once or twice, and those that
#: are also written without their full stop.
COMMON_ABBREVIATIONS: Final = frozenset(
    (
        *("dr", "jr", "mr", "mrs", "ms", "prof", "sr", "st"),
        *("al", "approx", "cf", "e.g", "eq", "eqs", "etc", "fig", "figs", "i.e", "vs"),
        *("inc", "ltd"),
    )
)

_LINE_BREAKS = "\n\r\u2028\u2029\u0085\v\f"
_BREAK = re.compile(f"[{_LINE_BREAKS}]+")
_SURE_END = re.compile(
    rf"[{SENTENCE_ENDERS}][{SENTENCE_ENDERS}!?…]*[{SURE_CLOSERS}]*|[!?]+[{SURE_CLOSERS}]*(?=[{SPACELESS}])"
)
_ACRONYM = re.compile(r"(?<!\w)((?:[^\W\d_]{1,2}\.){2,})(?=[\s,;:)\]]|$)")
_LIST_NUMBER = re.compile(r"\(?\d{1,3}[.)]")
_WINDOW = 20_000  # characters
_LONGEST_LINE = 100_000  # characters; what a training line holds beyond them is left out


class SentenceModel:
    """A trained Punkt and what goes with it: finds the ends of sentences in a text."""

    def __init__(self, parameters: PunktParameters) -> None:
        """Take over trained parameters; see `train_sentences` and `SentenceModel.from_json`."""
        from nltk.tokenize.punkt import PunktSentenceTokenizer

        self._parameters = parameters
        self._tokenizer: PunktSentenceTokenizer = PunktSentenceTokenizer(parameters)

    @property
    def abbreviations(self) -> tuple[str, ...]:
        """What a full stop does not end a sentence after, in lower case and without it."""
        return tuple(sorted(self._parameters.abbrev_types))

    def ends(self, text: str) -> list[int]:
        """The positions in the text, ascending, at which a sentence ends; the last is the end of the text.

        A line break ends a sentence, and so do the marks of scripts in which they do nothing else. A piece
        without a word, such as a bracket, goes with the one before it, the number of a list with the one after.
        """
        ends: set[int] = {len(text)}
        for start, line in _lines(text):
            ends.add(start + len(line))
            ends.update(start + end for end in self._punkt_ends(line))
            ends.update(start + match.end() for match in _SURE_END.finditer(line))
        return ends_of_words(text, sorted(ends))

    def _punkt_ends(self, line: str) -> Iterator[int]:
        """The ends that Punkt finds in a line, a window of it at a time.

        Punkt gives up on a text that takes it longer than some seconds; windows keep it far from that.
        """
        start = 0
        while len(line) - start > _WINDOW:
            stop = line.rfind(" ", start, start + _WINDOW) + 1 or start + _WINDOW
            found = [start + end for _, end in self._tokenizer.span_tokenize(line[start:stop])][:-1]
            yield from found
            start = found[-1] if found else stop
        yield from (start + end for _, end in self._tokenizer.span_tokenize(line[start:]))

    def to_json(self) -> dict[str, Any]:
        """The parameters as plain, sorted JSON, equal for equal models."""
        parameters = self._parameters
        return {
            "abbreviations": list(self.abbreviations),
            "collocations": sorted(map(list, parameters.collocations)),
            "sentence_starters": sorted(parameters.sent_starters),
            "orthography": dict(sorted(parameters.ortho_context.items())),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], where: str) -> SentenceModel:
        """The model that `to_json` wrote.

        Args:
            value: the object.
            where: the file that it stands in, for messages.

        Raises:
            UserError: it is not such an object.
        """
        from nltk.tokenize.punkt import PunktParameters

        parameters = PunktParameters()
        try:
            parameters.abbrev_types.update(value["abbreviations"])
            parameters.collocations.update((first, second) for first, second in value["collocations"])
            parameters.sent_starters.update(value["sentence_starters"])
            parameters.ortho_context.update(value["orthography"])
        except (KeyError, TypeError, ValueError):
            raise UserError(
                "not what `pipedec segment` writes", where=where, todo="run `pipedec segment` again"
            ) from None
        return cls(parameters)


def train_sentences(targets: Sequence[str], sources: Sequence[str]) -> SentenceModel:
    """Train Punkt on the data's own text: the targets, then the sources, at most `TRAINING_CHARACTERS` of them.

    Of texts that are too many a regular sample is taken, so that the result depends on the data alone.

    Args:
        targets: the texts that are to be segmented.
        sources: more text of the same domain.
    """
    from nltk.tokenize.punkt import PunktTrainer

    known = COMMON_ABBREVIATIONS | _acronyms(targets)

    class Trainer(PunktTrainer):  # type: ignore[misc]
        """Keeps to the abbreviations that are known whatever the statistics say.

        They must be known from the start: a full stop that is taken for a sentence's end teaches that the word
        after it starts sentences.
        """

        def _reclassify_abbrev_types(self, types: Iterable[str]) -> Iterator[tuple[str, float, bool]]:
            for kind, score, is_new in super()._reclassify_abbrev_types(types):
                if kind not in known:
                    yield kind, score, is_new

    sample = _sample(targets, TRAINING_CHARACTERS)
    sample += _sample(sources, TRAINING_CHARACTERS - sum(map(len, sample)))
    trainer = Trainer()
    trainer.get_params().abbrev_types.update(known)
    # Each text is a paragraph of its own: an empty line tells Punkt that a sentence starts.
    trainer.train(
        "\n\n".join(line[:_LONGEST_LINE] for text in sample for _, line in _lines(text)), finalize=True
    )
    return SentenceModel(trainer.get_params())


def ends_of_words(text: str, ends: Iterable[int]) -> list[int]:
    """The ends, ascending, without those that would leave a piece of punctuation, or the number of a list, alone."""
    kept: list[int] = []
    for end in ends:
        piece = text[kept[-1] if kept else 0 : end].strip()
        if end < len(text) and _LIST_NUMBER.fullmatch(piece):
            continue
        if has_words(piece):
            kept.append(end)
        elif kept:
            kept[-1] = end
    return kept or [len(text)]


def _sample(texts: Sequence[str], characters: int) -> list[str]:
    """Every n-th text, n such that about that many characters come together."""
    total = sum(map(len, texts))
    if total <= characters:
        return list(texts)
    if characters <= 0:
        return []
    return list(texts[:: -(-total // characters)])


def _acronyms(texts: Iterable[str]) -> set[str]:
    """Every ``U.S.`` and ``a.k.a.`` in the texts: letters with full stops between them are an abbreviation.

    Punkt alone would go by statistics, which call it none where it often ends a sentence or lacks its last stop.
    """
    return {match[1][:-1].lower() for text in texts for match in _ACRONYM.finditer(text)}


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a text that hold more than white space, each with its position."""
    start = 0
    for match in _BREAK.finditer(text):
        if line := text[start : match.start()].rstrip():
            yield start, line
        start = match.end()
    if line := text[start:].rstrip():
        yield start, line
