"""A model that finds some answers probable, for tests of rows without training."""

from collections.abc import Mapping, Sequence

from pipedec_cli.decoding.decoder import Decoder
from pipedec_cli.pipeline.answers import WRITTEN
from pipedec_cli.pipeline.decode import Row
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
        decoder: Decoder,
        likely: Sequence[str] = (),
        written: Mapping[int, str] | None = None,
    ) -> None:
        self._codec = decoder.text
        self._end = decoder.plan.end
        self._likely = likely
        self._written = {
            number: [*self._ids(text), self._end]
            for number, text in (written or {}).items()
        }
        self._made: dict[tuple[int, int], int] = {}

    def _ids(self, text: str) -> list[int]:
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

    def step_with_odds(
        self, rows: Sequence[Row], top: int = 0
    ) -> tuple[list[int], list[Odds]]:
        trials: dict[tuple[int, int, int], list[int]] = {}
        for number, row in enumerate(rows):
            if 0 < row.slot.branch < WRITTEN:
                trials.setdefault(
                    (row.sequence, row.slot.subsequence, row.slot.branch), []
                ).append(number)
        answers = [0] * len(rows)
        odds = [Odds()] * len(rows)
        for numbers in trials.values():
            text = self._codec.decode(
                [rows[number].slot.end for number in numbers[:-1]]
            )
            for number in numbers:
                odds[number] = Odds(end=self._chance(text))
        for number, row in enumerate(rows):
            if row.slot.answers and not 0 < row.slot.branch < WRITTEN:
                answers[number], odds[number] = self._write(row)
        return answers, odds

    def _chance(self, text: str) -> float:
        """How probable each token of a known answer is. The text may begin with the end of a question."""
        for place, likely in enumerate(self._likely):
            if text == likely or text.endswith(
                (f" {likely}", f":{likely}", f"\n{likely}")
            ):
                return LESS if place else LIKELY
        return OTHERS

    def _write(self, row: Row) -> tuple[int, Odds]:
        key = (row.sequence, row.slot.subsequence)
        made = self._made.get(key, 0)
        self._made[key] = made + 1
        told = self._written.get(row.slot.subsequence, [])
        allowed = tokens_in(row.slot.allowed)
        token = told[made] if made < len(told) else self._end
        if allowed and token not in allowed:
            token = self._end if self._end in allowed else allowed[0]
        return token, Odds(LESS, LESS if token == row.slot.end else 0.0)
