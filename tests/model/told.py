"""A model that finds some answers probable, for tests of rows without training."""

from pipedec_cli.pipeline.answers import WRITTEN
from pipedec_cli.pipeline.grid import Odds
from tests.fakes import tokens_in

#: The probability of each token of an answer that is likely, of the next one in the
#: order, and of all others.
LIKELY, LESS, OTHERS = 0.99, 0.9, 0.01


class Told:
    """A `StepModel`: of known answers those that are `likely` are probable, the first one most.

    The row with a number writes the text that it is told to, as far as that is allowed;
    others write anything.
    """

    def __init__(
        self,
        decoder,
        likely=(),
        written=None,
    ):
        self._codec = decoder.text
        self._end = decoder.plan.end
        self._likely = likely
        self._written = {
            number: [*self._ids(text), self._end]
            for number, text in (written or {}).items()
        }
        self._made = {}

    def _ids(self, text):
        return self._codec.ids([f" {text}"])[0]

    def admit(self, newcomers):
        pass

    def release(self, sequence):
        self._made = {
            key: count for key, count in self._made.items() if key[0] != sequence
        }

    def take_back(self, sequence, count):
        pass

    def step(self, rows):
        return self.step_with_odds(rows)[0]

    def step_with_odds(self, rows, top=0):
        answers = [0] * len(rows)
        odds = [Odds()] * len(rows)
        for number, chances in self._of_trials(rows).items():
            odds[number] = Odds(end=chances[0], others=chances[1:])
        for number, row in enumerate(rows):
            if row.slot.answers and not 0 < row.slot.branch < WRITTEN:
                answers[number], odds[number] = self._write(row)
        return answers, odds

    def _of_trials(self, rows):
        """Of each token of known answers, how probable those behind it are: as the likeliest answer that goes on so."""
        chances = {}
        path = []
        for number, (_, slot) in enumerate(rows):
            if not 0 < slot.branch < WRITTEN:
                continue
            chances[number] = [OTHERS] * len(_wanted(slot))
            # The tokens of a row come as a tree is read: those before it in the row.
            while path and not _is_behind(slot, rows[path[-1]].slot):
                path.pop()
            path.append(number)
            if self._end not in _wanted(slot):
                continue
            tokens = [rows[before].slot.token for before in path[1:]]
            chance = self._chance(self._codec.decode(tokens))
            for before, token in zip(path, (*tokens, self._end), strict=True):
                place = _wanted(rows[before].slot).index(token)
                chances[before][place] = max(chance, chances[before][place])
        return chances

    def _chance(self, text):
        """How probable each token of a known answer is. The text may begin with the end of a question."""
        for place, likely in enumerate(self._likely):
            if text == likely or text.endswith(
                (f" {likely}", f":{likely}", f"\n{likely}")
            ):
                return LESS if place else LIKELY
        return OTHERS

    def _write(self, row):
        key = (row.sequence, row.slot.subsequence)
        made = self._made.get(key, 0)
        self._made[key] = made + 1
        told = self._written.get(row.slot.subsequence, [])
        allowed = tokens_in(row.slot.allowed)
        token = told[made] if made < len(told) else self._end
        if allowed and token not in allowed:
            token = self._end if self._end in allowed else allowed[0]
        return token, Odds(LESS, LESS if token == row.slot.end else 0.0)


def _wanted(slot):
    return (slot.end, *slot.others)


def _is_behind(slot, before):
    """Whether a token of known answers of a row may stand behind another one of these."""
    return slot.subsequence == before.subsequence and slot.number > before.number
