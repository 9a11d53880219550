"""Answers to typed questions about texts, from Python, with a probability for every answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.notebook import table
from pipedec_cli.data.records import Generated
from pipedec_cli.jobs.texts import results_of, settings_for, taken
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
            value = answer.value
            said = f"{value:.2g}" if isinstance(value, float) else value or ""
            shares = answer.probabilities.items()
            others = "; ".join(f"{label} {share:.2g}" for label, share in shares)
            rows.append([name, said, f"{answer.confidence:.2g}", others])
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
    checked = check_questions(map(_question, questions))
    if not temperature > 0:
        raise UserError(f"temperature is {temperature}", todo="give more than 0")
    settings = settings_for(model, {"dtype": dtype, "device": device})
    decoder = deciding(
        taken(model, settings), checked, temperature=temperature, prior=prior
    )

    def decided() -> Iterator[Decided]:
        for result, text in results_of(decoder, decoder.method(), sources, batch_size):
            assert isinstance(result, Generated), "only whole results are asked for"
            decisions = decisions_of(decoder, result, text)
            yield Decided(text, {each.name: each for each in decisions})

    return decided()


def _question(given: object) -> Question:
    if not isinstance(given, Question):
        todo = "give Predicate, Choice, Score or Text, each with a name"
        raise UserError(f"{given!r} is no question", todo=todo)
    return given
