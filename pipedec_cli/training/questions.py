"""Records as questions: the rows that ask an ordinary model for a record's keys, with their right answers.

A model that learns them is asked in the same words: see `objects.rows`. Each record has
a row for each of its keys and for some that it lacks, whose answer is "no value". What
a row cannot write when it is decoded, it does not learn: the text of a free value that
does not stand in the source.

The model is to read the question. So keys have other names at times, which the
descriptions of a schema give, and choices come in any order. Some records are behind
examples, which are records that came before.
"""

import random
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from msgspec import structs

from pipedec_cli.data.fields import Field, alike, path_name
from pipedec_cli.data.places import places_in
from pipedec_cli.data.records import Record
from pipedec_cli.model.checkpoint import Checkpoint
from pipedec_cli.objects.asked import NONE, Asked, asked_of, names_in
from pipedec_cli.objects.examples import (
    RightAnswer,
    example_lines,
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
#: The most keys of its own set that a record lacks and is asked for; and those of other
#: sets.
_LACKING: Final = 12
_FOREIGN: Final = 2
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
        self._before = defaultdict[str, deque[Record]](
            lambda: deque(maxlen=2 * _MOST_SHOTS)
        )
        self._all_fields = [*chain(*segmentation.sets.values())]

    def _prompt(self, *, chat: bool) -> RowPrompt:
        template = KEYS_PROMPT if chat else SHOTS_PROMPT
        return RowPrompt(self._codec, template, ["a", "b"], [], [], chat=chat)

    def encode(self, record: Record) -> Encoded:
        """The ids of a record's prompt, and of its rows."""
        draw = random.Random(f"{record.id} {record.source}")  # noqa: S311
        fields = self._segmentation.fields_of(record)
        before = self._before[record.id.partition("/")[0]]
        shots = self._draw_shots(before, draw)
        before.append(record)
        names = _other_names(fields, draw)
        asked = _varied(fields, names, draw)
        tree = tree_of(asked)
        shown = []
        length = 0
        for shot in shots:
            lines = _lines_of(tree, shot, names)
            length += len(shot.source) + len(lines)
            if length <= _MOST_SHOWN:
                shown.append((shot.source, lines))
        prompt = self._behind_shots if shown else self._alone
        self._codec.prompt = prompt.with_shots("a", shown)
        source, is_cut = self._codec.source(record.source)
        filled = []
        lacking = []
        for answer in _answers(tree, _renamed_target(record, names)):
            if answer.text == NONE:
                lacking.append(answer)
            elif _is_writable(answer, record.source):
                filled.append(answer)
        lacking = draw.sample(lacking, min(_LACKING, len(lacking)))
        lacking += self._foreign(asked, draw)
        rows = [_row(prompt, answer) for answer in (*filled, *lacking)]
        known, texts = zip(*rows, strict=True)
        return Encoded(source, texts, is_cut, known, len(lacking))

    def _draw_shots(
        self, before: Sequence[Record], draw: random.Random
    ) -> list[Record]:
        """The examples that stand before a record: some of those `before`, or none."""
        if not before or draw.random() >= _SHOWN:
            return []
        count = draw.randint(1, min(_MOST_SHOTS, len(before)))
        return draw.sample([*before], count)

    def _foreign(self, fields: Fields, draw: random.Random) -> Iterator[RightAnswer]:
        """Rows that ask for keys of other sets, which have no value here."""
        own = {alike(field.name).casefold() for field in fields}
        for field in draw.sample(
            self._all_fields, min(_FOREIGN, len(self._all_fields))
        ):
            name = alike(field.name).casefold()
            if name not in own and 0 not in field.keys:
                yield RightAnswer(Asked(Part(field), field.keys), NONE)


def _answers(tree: Part, record: Record) -> Iterator[RightAnswer]:
    """The right answers of all rows that ask for a record's object."""
    texts = target_texts(tree, record)
    for asked in asked_of(Asked(tree)):
        yield from right_answers(asked, texts)


def _lines_of(tree: Part, shot: Record, names: Mapping[str, str]) -> str:
    """The lines that show the answers of an example."""
    texts = target_texts(tree, _renamed_target(shot, names))
    lines: list[str] = []
    for asked in asked_of(Asked(tree)):
        lines += example_lines(asked, texts)
    return "\n".join(lines)


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


def _varied(fields: Fields, names: Mapping[str, str], draw: random.Random) -> Fields:
    """The same keys with other names, and their choices in any order."""
    varied = []
    for field in fields:
        path = tuple(_renamed(key, names) for key in field.keys)
        choices = draw.sample(field.enum, len(field.enum))
        varied.append(
            structs.replace(field, name=path_name(path), path=path, enum=tuple(choices))
        )
    return varied


def _renamed_target(record: Record, names: Mapping[str, str]) -> Record:
    """A record whose object has other names for its keys."""
    if not names:
        return record
    target = _renamed_keys(record.target_fields or {}, names)
    return structs.replace(record, target_fields=target)


def _renamed_keys(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {
            names.get(key, key): _renamed_keys(inner, names)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_renamed_keys(item, names) for item in value]
    return value


def _renamed(key: str | int, names: Mapping[str, str]) -> str | int:
    return names.get(key, key) if isinstance(key, str) else key
