"""Answers to typed questions about texts, from Python, with a probability for every answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.notebook import table
from pipedec_cli.data.writing import rounded
from pipedec_cli.jobs.texts import Result, results_of, settings_for, taken
from pipedec_cli.objects.questions import Question, check_questions

if TYPE_CHECKING:
    from pipedec_cli.decoding.decisions import Decision
    from pipedec_cli.decoding.decoder import Decoder


@dataclass(frozen=True, slots=True)
class Decided:
    """The answers to all questions about a text, by the names of the questions. A notebook shows them as a table."""

    text: str
    answers: Mapping[str, Decision]

    def _repr_html_(self) -> str:
        """For notebooks: each answer with its confidence and the probabilities of all."""
        rows = []
        for name, answer in self.answers.items():
            shares = rounded(answer.probabilities, 4)
            rows.append((name, answer.value, answer.confidence, shares))
        return table(("question", "answer", "confidence", "probabilities"), rows)


def decide(
    texts: Iterable[str],
    questions: Iterable[Question],
    *,
    model: str | Path | Decoder,
    dtype: str | None = None,
    device: str | None = None,
    temperature: float = 1.0,
    prior: bool = False,
    batch_size: int | None = None,
) -> Iterator[Decided]:
    """Answer questions about each text, with an ordinary decoder-only model: yields in order, each as soon as it is done.

    Args:
        texts: Any iterable. It is read as results are taken.
        questions: `Predicate`, `Choice`, `Score` and `Text`, each with a name of its
            own.
        model: A folder, a GGUF file or a hub name; or what `load` gives.
        dtype: See `load`. A loaded model has its own, and its own device.
        device: See `load`.
        temperature: What scores are divided by before they become probabilities.
        prior: Whether the score of an answer behind an empty text is subtracted.
        batch_size: Texts decoded at the same time; by default 1, or as loaded.

    Raises:
        UserError: For questions or a model that cannot be used.
    """
    from pipedec_cli.decoding.decisions import deciding, decisions_of
    from pipedec_cli.model.arguments import check_texts

    sources = check_texts(texts)
    if isinstance(questions, str | Question) or not isinstance(questions, Iterable):
        raise UserError(f"the questions are {questions!r}", todo="give a list of them")
    checked = check_questions(map(_question, questions))
    if not isinstance(temperature, int | float) or not temperature > 0:
        what = f"temperature is {temperature!r}"
        raise UserError(what, todo="give a number above 0")
    settings = settings_for(model, dtype=dtype, device=device)
    decoder = deciding(
        taken(model, settings), checked, temperature=temperature, prior=prior
    )

    def decided(result: Result) -> Decided:
        decisions = decisions_of(decoder, result.generated, result.text)
        return Decided(result.text, {each.name: each for each in decisions})

    return map(decided, results_of(decoder, decoder.method(), sources, batch_size))


def _question(given: object) -> Question:
    if not isinstance(given, Question):
        todo = "give Predicate, Choice, Score or Text, each with a name"
        raise UserError(f"{given!r} is no question", todo=todo)
    return given
