"""Finds the ends of words and sentences: by the writing system, and by Punkt, trained on the data's own text."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice, pairwise
from typing import Any, Final
from unicodedata import category

import regex
from msgspec import Struct

#: The characters that Punkt is trained on, at most. More does not improve its
#: statistics; it reads some 300,000 a second.
TRAINING_CHARACTERS: Final = 2_000_000

#: Abbreviations of no special domain: titles, and others that are too rare in small
#: files to be learnt.
COMMON_ABBREVIATIONS: Final = """
    capt col dr gen gov jr lt maj messrs mme mr mrs ms mt prof rev sen sgt sr st
    al approx cf e.g eq eqs etc fig figs i.e vs inc ltd
"""

#: Words that a name or a date does not have after a number: a sentence starts with
#: them.
COMMON_STARTERS: Final = "after an and but for he his if in it she that the there these they this we when with you"

#: An abbreviation is learnt if the next word shows for this share of its occurrences
#: that the sentence goes on.
INSIDE_SHARE: Final = 0.2

# The next four constants are for character classes of regular expressions.
#: Scripts without spaces between words: Thai and Lao, Tibetan, Myanmar, Khmer, kana,
#: Han.
_SPACELESS: Final = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)

#: Marks that always end a sentence; the full stop does not.
_SENTENCE_ENDERS: Final = (
    "。｡！？‼⁇⁈⁉"  # Chinese and Japanese, and the doubled marks
    "؟۔।॥։\u037e"  # Arabic and Urdu, Devanagari and its neighbours, Armenian, the Greek question mark
    "།༎၊။។៕።፧፨᠃᠉"  # Tibetan, Myanmar, Khmer, Ethiopic, Mongolian
)

#: Marks that always end a clause, except between two digits.
_CLAUSE_ENDERS: Final = _SENTENCE_ENDERS + "，、；：．､،؛፣፤፥፦᠂᠄…‥"

#: Marks that may follow and still belong to the sentence or clause. A straight
#: quotation mark is not among them: without a space, it may open or close.
_SURE_CLOSERS: Final = "’”»›)\\]}」』）】》〉〕］｝"

_BREAK = re.compile("[\n\r\u2028\u2029\u0085\v\f]+")
_SURE_END = re.compile(
    rf"""
    [{_SENTENCE_ENDERS}] [{_SENTENCE_ENDERS}!?…]* [{_SURE_CLOSERS}]*
    | [!?]+ [{_SURE_CLOSERS}]* (?=[{_SPACELESS}])
    | (?<=[^\W\d_]{{3}}) \. [¹²³⁰-⁹]+ (?=\s)  # the mark of a footnote
    # Marks as people type them: the Greek ; the Armenian : the Devanagari | and the Ethiopic ::
    | (?: (?<=[Ͱ-Ͽἀ-῿]); | (?<=[\u0531-\u0587]): | (?<=[\u0900-\u0dff])[ ]?\| | (?<=[\u1200-\u137f]):: )
      [{_SURE_CLOSERS}]* (?=\s|$)
    """,
    re.VERBOSE,
)
#: Marks of a footnote, such as ``[7]`` or ``²``, and quotation marks that open or
#: close.
_FOOTNOTE: Final = r"\[(?:\d{1,3}|[a-z]|note[ ]\d{1,3})\]|[¹²³⁰-⁹]"
_QUOTES: Final = "\"'“‘«‹„"
#: Characters without a width, such as the marks of a writing direction; two of them
#: stand where a space may.
_UNSEEN: Final = (
    "\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060\u2066-\u2069\ufe0e\ufe0f\ufeff"
)
_UNSEEN_SPACES: Final = "\u200b\ufeff"
_EMOJI: Final = r"(?:\p{Emoji_Presentation}|(?<=\u200d)\p{Extended_Pictographic}|\p{Extended_Pictographic}\ufe0f|[☺♥❤])"
_SIGNS: Final = rf"(?:[{_UNSEEN}]|{_EMOJI})+"
#: Signs that belong to the mark before them: at once, or with space around them.
_BEHIND: Final = rf"(?:{_SIGNS}|(?:[ \t\u00a0\u202f\u3000]+{_SIGNS}(?=\s|$))+)"
_LEANING = regex.compile(_BEHIND)
_CLOSING = regex.compile(
    rf"""
    (?: [{_SURE_CLOSERS}]* (?:{_FOOTNOTE})+
    | [{_SURE_CLOSERS}]* [{_QUOTES}{_SURE_CLOSERS}]+ (?= [\s,;:.!?…，、)\]] | $ | {_BEHIND} )
    | (?: \s[»›] )+ (?=\s|$)
    | {_BEHIND}
    )+
    """,
    regex.VERBOSE,
)
#: Signs in whose place Punkt must see a space: it takes what has none behind it for a
#: part of a word.
_UNSPACED = regex.compile(
    rf"""
    (?<= [.!?…] [{_QUOTES}{_SURE_CLOSERS}]{{,4}} )
    (?: [{_UNSEEN}]+ (?= [{_QUOTES}{_SURE_CLOSERS}]{{,4}} (?:\s|$) )
    | [{_UNSEEN}]* (?: [{_UNSEEN_SPACES}] | {_EMOJI} ) (?:{_SIGNS})?
    )
    """,
    regex.VERBOSE,
)
_STRAIGHT: Final = '"'
#: What follows shows that the sentence goes on: a comma, the rest of a word as in
#: ``Ph.D.'s``, the next dot of ``. . .``, the Japanese particle that follows what
#: somebody said, which begins words as well
_GOES_ON = re.compile(
    r"""
    [,;:，、] | (?<=\w[.!?])['’][^\W\d_] | \s+\.(?=[\s.]|$)
    | (?<=[」』]) (?: って | と (?! ても | ころ | にかく | うとう | りあえず | きどき | もかく ) )
    """,
    re.VERBOSE,
)
#: The same in a text with capitals: a small letter behind a quotation.
_GOES_ON_SMALL = regex.compile(r"(?<=[\"'’”»›)])\s+\p{Ll}")
#: The colon before a list in a line whose items are sentences, ``1. …. 2. ….``
_BEFORE_LIST = re.compile(r":(?=\s+\(?1[.)]\s.*[.!?]\s+\(?2[.)]\s)")
_WORD = re.compile(rf"[{_SPACELESS}][^\w\s]*|[^\s{_SPACELESS}]+")
_SPACELESS_CHARACTER = re.compile(f"[{_SPACELESS}]")
_LETTER = re.compile(r"[^\W\d_]")
#: The punctuation that ends a clause, except the single full stop: ``, ; : ! ? … —``
#: before white space, and such marks of other scripts anywhere. So ``3.5``, ``1,000``,
#: ``10:30`` and ``well-known`` stay whole.
_CLAUSE_END = re.compile(
    rf"""
    (?: [,;:!?…‥] [,;:!?….‥]* | \.{{2,}} | [—–] | -- )  # ends a clause where white space follows;
    ["'{_SURE_CLOSERS}]* (?=[{_UNSEEN}]*\s)              # Punkt judges the single full stop
    | [{_CLAUSE_ENDERS}] [{_CLAUSE_ENDERS}!?]* [{_SURE_CLOSERS}]*  # ends a clause anywhere,
    (?! (?<=\d[{_CLAUSE_ENDERS}]) \d )                           # except inside a number
    """,
    re.VERBOSE,
)
_NUMBER: Final = "##number##"  # as Punkt writes it
_ENDS_IN_NUMBER = re.compile(r"\d\.$")
_ACRONYM = re.compile(r"(?<!\w)((?:[^\W\d_]{1,2}\.){2,})(?=[\s,;:)\]]|$)")
_COMMON = "|".join(map(re.escape, COMMON_ABBREVIATIONS.split()))
#: A word to which the full stop behind it belongs, in any text.
_ABBREVIATION = regex.compile(
    rf"""(?<![\w.])(?:
    (?:[^\W\d_]{{1,2}}\.){{2,}}                    # U.S., S.p.A.
    | \p{{Lu}}\.                                 # John Q. Public
    | (?i:{_COMMON})\.
    | \p{{Lu}}\w*\.(?=\s+\p{{Ll}}|\s*[,;:)])      # the sentence goes on
    )""",
    regex.VERBOSE,
)
_LIST_NUMBER = re.compile(r"\(?\d{1,3}[.)]")
#: An opening mark with a space on either side, as in French. Punkt takes it for the end
#: of the text before it.
_OPENING = re.compile(r"(?<=\s)[«‹“‘„(\[{]+\s*\Z")
_WINDOW = 20_000  # characters
_CLOSERS = "\"')]}”’»,;:"
_OPENERS = "\"'([{“‘«„¿¡"
_LONGEST_LINE = 100_000  # characters of a training line; the rest is left out


def count_words(text: str) -> int:
    """The number of words, cut at white space; in scripts without spaces, of characters."""
    if text.isascii() and len(text) <= _WINDOW:
        return len(text.split())
    # A list of all words would take many times the text's memory.
    return _occurrences(_WORD, text)


def abbreviations_in(text: str) -> set[str]:
    """The abbreviations in a text, each with the full stop at its end: initials, common ones, and words with a capital behind which the sentence goes on."""
    return {match[0] for match in _ABBREVIATION.finditer(text)}


def mostly_spaceless(texts: Iterable[str]) -> bool:
    """Whether more than half of the letters belong to scripts without spaces between words."""
    letters = spaceless = 0
    for text in texts:
        if text.isascii():
            letters += len(text)
            continue
        letters += _occurrences(_LETTER, text)
        spaceless += _occurrences(_SPACELESS_CHARACTER, text)
    return 2 * spaceless > letters


def _occurrences(pattern: re.Pattern[str], text: str) -> int:
    return sum(1 for _ in pattern.finditer(text))


class SentenceParameters(Struct, frozen=True):
    """The parameters of a trained Punkt, sorted; abbreviations are without their full stop."""

    abbreviations: tuple[str, ...]
    collocations: tuple[tuple[str, str], ...]
    sentence_starters: tuple[str, ...]
    orthography: dict[str, int]


class SentenceModel:
    """Finds the ends of sentences in a text: a trained Punkt, and marks and line breaks. See `train_sentences`."""

    def __init__(self, parameters: SentenceParameters) -> None:
        self.parameters = parameters

    @cached_property
    def _tokenizer(self) -> Any:
        """Punkt, made when it is first needed: nltk takes a second to import."""
        from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

        punkt = PunktParameters()
        parameters = self.parameters
        punkt.abbrev_types.update(parameters.abbreviations)
        punkt.collocations.update(parameters.collocations)
        punkt.sent_starters.update(parameters.sentence_starters)
        punkt.ortho_context.update(parameters.orthography)
        return PunktSentenceTokenizer(punkt)

    def ends(self, text: str, *, clauses: bool = False) -> list[int]:
        """The positions where a sentence ends, ascending, the end of the text included; with `clauses` also a clause.

        A line break ends a sentence, and so do the marks that always do. A piece
        without a word, such as a bracket, belongs to the piece before it, and the
        number of a list to the piece after it.
        """
        ends = {len(text)}
        has_capitals = text != text.lower()
        for start, line in _lines(text):
            ends.add(start + len(line))
            ends.update(start + match.end() for match in _BEFORE_LIST.finditer(line))
            marks = [match.end() for match in _SURE_END.finditer(line)]
            spaced = _UNSPACED.sub(lambda match: " " * len(match[0]), line)
            for mark in (*self._punkt_ends(spaced), *marks):
                end = _closed(line, mark, has_capitals)
                if end is not None:
                    ends.add(start + end)
        sentence_ends = _ends_of_words(text, ends)
        if not clauses:
            return sentence_ends
        clause_ends = (
            _behind_signs(text, match.end()) for match in _CLAUSE_END.finditer(text)
        )
        return _ends_of_words(text, {*sentence_ends, *clause_ends})

    def _punkt_ends(self, line: str) -> Iterator[int]:
        """The positions in a line where Punkt sees the end of a sentence."""
        # Punkt gives up on a text that takes it some seconds; windows keep it far below
        # that. The last sentence of a window, which may be cut, is read again.
        start = 0
        while len(line) - start > _WINDOW:
            stop = line.rfind(" ", start, start + _WINDOW) + 1 or start + _WINDOW
            spans = self._tokenizer.span_tokenize(line[start:stop])
            ends = [start + end for _, end in spans][:-1]
            yield from ends
            start = ends[-1] if ends else stop
        for _, end in self._tokenizer.span_tokenize(line[start:]):
            yield start + end


def train_sentences(targets: Iterable[str], sources: Iterable[str]) -> SentenceModel:
    """Train Punkt on the targets, then the sources, at most `TRAINING_CHARACTERS` of them.

    A regular sample is taken of too many texts, so that the result depends on the data
    alone. Both are iterated several times; only the sample is held in memory.
    """
    from nltk.tokenize.punkt import PunktTrainer

    sample = _sample(targets, TRAINING_CHARACTERS)
    sample += _sample(sources, TRAINING_CHARACTERS - sum(map(len, sample)))
    # Each text is a paragraph of its own: an empty line tells Punkt that a sentence
    # starts.
    text = "\n\n".join(
        line[:_LONGEST_LINE] for text in sample for _, line in _lines(text)
    )
    # Letters with full stops between them, as in U.S., are an abbreviation. Punkt's
    # statistics miss it if it often ends a sentence or lacks its last stop.
    acronyms = {
        match[1][:-1].lower()
        for target in targets
        for match in _ACRONYM.finditer(target)
    }
    titles = {*COMMON_ABBREVIATIONS.split(), *acronyms}
    plausible = _inside_sentences(text, targets, titles)

    class Trainer(PunktTrainer):  # type: ignore[misc]
        # Learns only plausible abbreviations beside the titles, from the start: else a full stop taken for a sentence's end teaches that the next word starts
        # sentences.
        def _reclassify_abbrev_types(
            self, types: Iterable[str]
        ) -> Iterator[tuple[str, float, bool]]:
            for word, score, is_new in super()._reclassify_abbrev_types(types):
                if word in plausible and word not in titles:
                    yield word, score, is_new

    trainer = Trainer()
    trainer.get_params().abbrev_types.update(titles)
    trainer.train(text, finalize=True)
    learnt = trainer.get_params()
    collocations = set(learnt.collocations)
    if any(first == _NUMBER for first, _ in collocations):
        collocations -= {(_NUMBER, word) for word in _starters(text)}
    parameters = SentenceParameters(
        # Punkt adds rare abbreviations past the statistics.
        abbreviations=tuple(sorted(learnt.abbrev_types & (titles | plausible))),
        collocations=tuple(sorted(collocations)),
        sentence_starters=tuple(sorted(learnt.sent_starters)),
        orthography=dict(sorted(learnt.ortho_context.items())),
    )
    return SentenceModel(parameters)


def _starters(text: str) -> set[str]:
    """The words, in lower case, that are capital only where a sentence starts.

    Punkt takes "He" in "born in 1950. He studied" for a collocation with a number, as
    in "3. Oktober". But "Oktober" is capital within sentences, too. A word after a
    number counts if the text or `COMMON_STARTERS` has it in lower case.
    """
    starts = set[str]()
    within = set[str]()
    after_number = set[str]()
    lower = set(COMMON_STARTERS.split())
    for line in text.split("\n\n"):
        for before, word in pairwise((".", *_words(line))):
            bare = word.rstrip(_CLOSERS + ".").lower()
            if not word[:1].isupper():
                lower.add(bare)
            elif _ENDS_IN_NUMBER.search(before):
                after_number.add(bare)
            elif before[-1] in ".!?":
                starts.add(bare)
            else:
                within.add(bare)
    return (starts | after_number & lower) - within


def _words(text: str) -> Iterator[str]:
    """The text cut at white space, without quotation marks and brackets that stand alone, as in "« Oui. »"."""
    return (word for word in text.split() if word.strip(_OPENERS + _CLOSERS))


def _inside_sentences(text: str, targets: Iterable[str], titles: set[str]) -> set[str]:
    """The words of a text, in lower case, after whose full stop the sentence often goes on.

    These may be abbreviations; `titles` are words that are, such as "dr" and "u.s".
    Punkt's statistics take a word that always has a full stop for an abbreviation. In
    texts made from templates the last word of every sentence is such a word. The next
    word tells the two apart. A sentence goes on if the next word is not capital; in
    text without capitals, if no target starts with it; or if it has a full stop itself,
    as in "Acta Math. Hung.", and is no title or initial, which open sentences.
    """
    stops = [
        (word, after.lstrip(_OPENERS))
        for word, after in pairwise(_words(text))
        if word.endswith(".")
    ]
    candidates = {after.lower() for _, after in stops}
    starters, is_cased = _target_starters(targets, candidates)
    seen = Counter[str]()
    inside = Counter[str]()
    for word, after in stops:
        bare = word[:-1].lstrip(_OPENERS).lower()
        starts = after[:1].isupper()
        if not is_cased and after.lower() in starters:
            starts = True
        then = after.rstrip(_CLOSERS)
        short = then.endswith(".") and len(then) > 2 and then[:-1].lower() not in titles
        seen[bare] += 1
        inside[bare] += short or not starts
    return {
        word for word, count in inside.items() if count >= INSIDE_SHARE * seen[word]
    }


def _target_starters(
    targets: Iterable[str], candidates: set[str]
) -> tuple[set[str], bool]:
    """The words among `candidates`, in lower case, that a target starts with; and whether most targets start with a capital."""
    starters = set[str]()
    capitals = 0
    others = 0
    for word in _first_words(targets):
        if word[:1].isupper():
            capitals += 1
        else:
            others += 1
        if word.lower() in candidates:
            starters.add(word.lower())
    return starters, capitals >= others


def _first_words(texts: Iterable[str]) -> Iterator[str]:
    """The first word of each text that has one, without the marks that open it."""
    for text in texts:
        for first in text.split(maxsplit=1)[:1]:
            yield first.lstrip(_OPENERS)


def _closed(line: str, end: int, has_capitals: bool) -> int | None:
    """Where a sentence ends whose last mark ends at `end`: behind the quotation marks and brackets that close it.

    None if what follows shows that the sentence goes on.
    """
    if _GOES_ON.match(line, end):
        return None
    if line.startswith(_STRAIGHT, end) and line.count(_STRAIGHT, 0, end) % 2:
        end += 1  # the second mark of a pair
    closing = _CLOSING.match(line, end)
    if closing:
        end = closing.end()
    if _GOES_ON.match(line, end) or (has_capitals and _GOES_ON_SMALL.match(line, end)):
        return None
    return end


def _behind_signs(text: str, end: int) -> int:
    """The place behind the signs that belong to the mark that ends there."""
    signs = _LEANING.match(text, end)
    return signs.end() if signs else end


def _ends_of_words(text: str, ends: Iterable[int]) -> list[int]:
    """The ends of pieces of a text, ascending, without those that leave punctuation, or the number of a list, alone.

    Marks that open what follows belong to the piece behind an end.
    """
    kept: list[int] = []
    for end in sorted(ends):
        start = kept[-1] if kept else 0
        if end < len(text):
            opening = _OPENING.search(text[start:end])
            if opening:
                end = start + opening.start()  # noqa: PLW2901
        piece = text[start:end].strip()
        if end < len(text) and _LIST_NUMBER.fullmatch(piece):
            continue
        if _has_word(piece):
            kept.append(end)
        elif kept:  # punctuation alone belongs to what stands before it
            kept[-1] = end
    return kept or [len(text)]


def _has_word(text: str) -> bool:
    """Whether a text has anything but punctuation; a symbol, such as an emoji, counts as a word."""
    if any(map(str.isalnum, text)):
        return True
    return any(not c.isspace() and category(c)[0] != "P" for c in text)


def _sample(texts: Iterable[str], characters: int) -> list[str]:
    """Every n-th text, so that about so many `characters` come together; of a huge text its beginning."""
    if characters <= 0:
        return []
    step = max(1, -(-sum(map(len, texts)) // characters))
    return [text[:TRAINING_CHARACTERS] for text in islice(texts, 0, None, step)]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a text with more than white space, each with its position."""
    breaks = [match.end() for match in _BREAK.finditer(text)]
    for start, end in pairwise([0, *breaks, len(text)]):
        line = text[start:end].rstrip()
        if line:
            yield start, line
