"""Records as questions: the rows that ask an ordinary model for a record's keys, with their right answers.

A model that learns them is asked in the same words: see `objects.rows`. Each record has
a row for each of its keys and for some that it lacks, whose answer is "no value". What
a row cannot write when it is decoded, it does not learn: the text of a free value that
does not stand in the source.

The model is to read the question. So keys have other names at times, which the
descriptions of a schema give, and choices come in any order. Some records are behind
examples, which are records that came before.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from msgspec import structs

from pipedec_cli.data.fields import Field, path_name, same_word
from pipedec_cli.data.places import places_in
from pipedec_cli.data.records import Record
from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.objects.asked import NONE, Asked, asked_of, names_in
from pipedec_cli.objects.examples import (
    RightAnswer,
    example_text,
    right_answers,
    target_texts,
)
from pipedec_cli.objects.grammar import is_free
from pipedec_cli.objects.row_prompt import RowPrompt, common_beginning
from pipedec_cli.objects.rows import KEYS_PROMPT, SHOTS_PROMPT
from pipedec_cli.objects.tree import Part, tree_of
from pipedec_cli.training.encoded import Encoded

#: The share of records that come behind examples, and the most examples of each.
_SHOWN: Final = 0.2
_MOST_SHOTS: Final = 4
#: The most characters of all examples of a record.
_MOST_SHOWN: Final = 1_200
#: The share of keys that get another name.
_RENAMED: Final = 0.3
#: The most keys of its own set that a record lacks and may be asked for.
_LACKING: Final = 12
#: The share of records that are asked for a key of another set. More of these teach
#: that a key which was never seen has no value.
_FOREIGN: Final = 0.25
_SYNONYMS: Final = re.compile(r"\balso(?: called)?:? ([^.;()]+)", re.IGNORECASE)

Fields = Sequence[Field]


def encode_questions(
    checkpoint: Checkpoint, records: Iterable[Record]
) -> Iterator[Encoded]:
    """Make token ids of records and of the rows that ask for their keys, as they come."""
    encoder = _QuestionEncoder(checkpoint)
    for record in records:
        yield encoder.encode(record)


class _QuestionEncoder:
    """Makes examples of records, one after the other. What it draws depends on the record alone, and on those before."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        assert checkpoint.settings is not None, "it has them before it is trained"
        segmentation = checkpoint.settings.segmentation
        self._segmentation = segmentation
        self._codec = checkpoint.codec()
        chat = checkpoint.settings.chat
        self._alone = self._prompt(chat=chat)
        self._behind_shots = self._prompt(chat=False) if chat else self._alone
        #: The last records of each set.
        self._before = defaultdict[str, deque[Record]](_last_records)
        self._all_fields = [*chain(*segmentation.sets.values())]

    def _prompt(self, *, chat: bool) -> RowPrompt:
        template = KEYS_PROMPT if chat else SHOTS_PROMPT
        return RowPrompt(self._codec, template, ["a", "b"], [], [], chat=chat)

    def encode(self, record: Record) -> Encoded:
        """The ids of a record's prompt, and of its rows."""
        draw = random.Random(f"{record.id} {record.source}")  # noqa: S311
        asking = _asking(self._segmentation.fields_of(record), draw)
        before = self._before[record.set_name]
        shots = self._draw_shots(before, asking, draw)
        before.append(record)
        prompt = self._behind_shots if shots else self._alone
        self._codec.prompt = prompt.with_shots("a", shots)
        source, is_cut = self._codec.source(record.source)
        filled = []
        lacking = []
        unwritable = 0
        for answer in asking.answers(record):
            if answer.text == NONE:
                lacking.append(answer)
            elif _is_writable(answer, record.source):
                filled.append(answer)
            else:
                unwritable += 1
        lacking = draw.sample(lacking, min(_LACKING, len(lacking)))
        if self._all_fields and draw.random() < _FOREIGN:
            lacking += self._foreign(asking, draw)
        known = []
        texts = []
        for answer in (*filled, *lacking):
            beginning, rest = _row(prompt, answer)
            known.append(beginning)
            texts.append(rest)
        return Encoded(
            source, tuple(texts), is_cut, tuple(known), len(lacking), unwritable
        )

    def _draw_shots(
        self, before: Sequence[Record], asking: _Asking, draw: random.Random
    ) -> list[tuple[str, str]]:
        """The examples that stand before a record, sources and their lines: some of the records `before` it, or none."""
        shots: list[tuple[str, str]] = []
        if not before or draw.random() >= _SHOWN:
            return shots
        count = draw.randint(1, min(_MOST_SHOTS, len(before)))
        length = 0
        for shot in draw.sample([*before], count):
            lines = asking.lines(shot)
            length += len(shot.source) + len(lines)
            if length <= _MOST_SHOWN:
                shots.append((shot.source, lines))
        return shots

    def _foreign(self, asking: _Asking, draw: random.Random) -> Iterator[RightAnswer]:
        """A row that asks for a key of another set, which has no value here."""
        own = {same_word(field.name) for field in asking.tree.values()}
        field = draw.choice(self._all_fields)
        if same_word(field.name) not in own and not field.listed:
            yield RightAnswer(Asked(Part(field), field.keys), NONE)


def _last_records() -> deque[Record]:
    """A queue that keeps the last of what it is given."""
    return deque(maxlen=2 * _MOST_SHOTS)


class _Asking(NamedTuple):
    """How a record's keys are asked for: all of them, some with another name than in its set."""

    tree: Part
    names: Mapping[str, str]  # other names by the keys' own

    @property
    def rows(self) -> list[Asked]:
        """The rows that start at once."""
        return [*asked_of(Asked(self.tree))]

    def lines(self, shot: Record) -> str:
        """The lines that show the answers of an example."""
        return example_text(self.rows, self.tree, self._renamed(shot))

    def answers(self, record: Record) -> Iterator[RightAnswer]:
        """The right answers of all rows, with those that answers open."""
        texts = target_texts(self.tree, self._renamed(record))
        for asked in self.rows:
            yield from right_answers(asked, texts)

    def _renamed(self, record: Record) -> Record:
        """A record whose object has the other names."""
        if not self.names:
            return record
        target = _renamed_keys(record.target_fields or {}, self.names)
        return structs.replace(record, target_fields=target)


def _asking(fields: Fields, draw: random.Random) -> _Asking:
    """One of the ways to ask for these keys: some have another name, and choices come in any order."""
    names = _other_names(fields, draw)
    varied = []
    for field in fields:
        path = tuple(_renamed_keys(field.keys, names))
        choices = draw.sample(field.enum, len(field.enum))
        varied.append(
            structs.replace(field, name=path_name(path), path=path, enum=tuple(choices))
        )
    return _Asking(tree_of(varied), names)


def _row(prompt: RowPrompt, answer: RightAnswer) -> tuple[list[int], list[int]]:
    """The known tokens of a row, and those of its answer, with the end."""
    asked = answer.asked
    words = asked.question() if prompt.chat else asked.opening()
    known = [*prompt.known(words)]
    whole = prompt.answered(words, answer.text)
    begin = len(common_beginning(known, whole))
    if begin < len(known):  # a token reaches over the end of the question
        return known, [*prompt.alone(answer.text), prompt.end]
    return known, [*whole[begin:], prompt.end]


def _is_writable(answer: RightAnswer, source: str) -> bool:
    """Whether a row can write its answer: a free text stands in the source."""
    field = answer.asked.part.field
    if answer.asked.part.shape == "choice" or not is_free(field):
        return True
    items = names_in(answer.text) if field.kind == "list" else [answer.text]
    return all(places_in(item, source) for item in items)


def _other_names(fields: Fields, draw: random.Random) -> dict[str, str]:
    """Other names for some of the keys, by their own names: the synonyms that their descriptions give."""
    names = {}
    for field in fields:
        key = field.keys[-1]
        synonyms = synonyms_of(field.description)
        if synonyms and draw.random() < _RENAMED:
            names[str(key)] = draw.choice(synonyms)
    taken = [field.keys[-1] for field in fields]
    return {key: name for key, name in names.items() if name not in taken}


def synonyms_of(description: str) -> list[str]:
    """The other names of a key that its description gives behind the word "also": ``the sum (also: amount, total due)``."""
    synonyms = []
    for listed in _SYNONYMS.findall(description):
        synonyms += re.split(r",| or ", listed)
    return [*filter(None, map(str.strip, synonyms))]


def _renamed_keys(value: Any, names: Mapping[str, str]) -> Any:
    """A path, or an object with all that is in it, whose keys have other names."""
    if isinstance(value, tuple):
        return [names.get(key, key) for key in value]
    if isinstance(value, list):
        return [_renamed_keys(item, names) for item in value]
    if not isinstance(value, Mapping):
        return value
    renamed = {}
    for key, inner in value.items():
        renamed[names.get(key, key)] = _renamed_keys(inner, names)
    return renamed
