"""Decisions: typed questions about a text, with a probability for every answer.

`pipedec_cli.jobs.decide` is what Python programs call. All questions about a text are one
call of the decoder::

    questions = [
        Predicate("urgent", "Does the customer want an answer today?"),
        Choice("topic", choices=["delivery", "invoice", Option("other", "anything else")]),
        Score("anger", levels=["calm", "annoyed", "furious"]),
        Text("order", "What is the number of the order?", grounded=True),
    ]
    decoder = deciding(load("model"), questions)
    text = "Where is order 4471?!"
    for generated in decoder.texts([text]):
        for decision in decisions_of(decoder, generated, text):
            print(decision.name, decision.value, decision.probabilities)

A server that decodes by itself runs `decoder.method()` on the texts, as it does with any
blind rows, and makes the answers of each `Generated` by `decisions_of`.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from pipedec_cli.data.fields import path_name
from pipedec_cli.data.places import places_of
from pipedec_cli.data.records import Generated
from pipedec_cli.decoding.blind import blind_decoder, plan_of
from pipedec_cli.decoding.calibration import find_priors
from pipedec_cli.decoding.decoder import Decoder
from pipedec_cli.objects.questions import YES, Kind, Question, check_questions
from pipedec_cli.objects.rows import Rows


class Decision(Struct, frozen=True, kw_only=True):
    """The answer to a question.

    Its `value` is the probability of yes, the label of the best choice, the mean level,
    or a text; None if a text has no answer. The `confidence` is the probability of the
    best answer, and of a text that of its tokens.
    """

    name: str
    kind: Kind
    value: float | str | None
    confidence: float
    #: Of each known answer by its label, in the order of the question.
    probabilities: Mapping[str, float] = {}
    #: Where a text stands in the source: all places [start, end), in characters.
    spans: Sequence[tuple[int, int]] = ()


def deciding(
    plain: Decoder,
    questions: Iterable[Question],
    *,
    template: str | None = None,
    chat: bool | None = None,
    temperature: float = 1.0,
    prior: bool = False,
) -> Decoder:
    """A decoder that answers questions, with the weights and engines of an ordinary decoder-only model.

    All known answers of all questions go through the model in one call behind one
    reading of the text (in several calls where they have more than 4,096 tokens).

    Args:
        plain: The model.
        questions: Each has a name of its own.
        template: The prompt, with {source} and, behind it, {question}.
        chat: Whether the prompt stands in the model's chat template; by default if it
            has one.
        temperature: What scores are divided by before they become probabilities.
        prior: Whether the score of an answer behind an empty text is subtracted. The
            model is run for that, so no other thread may step its engines by itself.

    Raises:
        UserError: The model is of another kind, the prompt does not fit, or a name is
            doubled.
    """
    rows = Rows(questions=check_questions(questions))
    decoder = blind_decoder(
        plain, rows, template=template, chat=chat, shares_engines=True
    )
    plan = plan_of(decoder)
    plan.temperatures = dict.fromkeys([asked.part for asked in plan.asked], temperature)
    if prior:
        find_priors(decoder)
    return decoder


def decisions_of(
    decoder: Decoder, generated: Generated, source: str
) -> tuple[Decision, ...]:
    """The answers that a decoder of `deciding` has given, in the order of the questions."""
    questions = plan_of(decoder).rows.questions
    return tuple(_decision(question, generated, source) for question in questions)


def _decision(question: Question, generated: Generated, source: str) -> Decision:
    path = path_name((question.name,))
    shares = generated.probabilities.get(path, {})
    if not shares:
        return _text_decision(question, generated, source)
    labels = list(shares)
    chances = list(shares.values())
    confidence = max(chances)
    value: float | str = labels[chances.index(confidence)]
    if question.kind == "predicate":
        value = shares[YES]
    elif question.kind == "score":
        value = sum(level * chance for level, chance in enumerate(chances, start=1))
    return Decision(
        name=question.name,
        kind=question.kind,
        value=value,
        confidence=confidence,
        probabilities=shares,
    )


def _text_decision(question: Question, generated: Generated, source: str) -> Decision:
    values = generated.fields or {}
    confidences = generated.confidence or {}
    value = values.get(question.name)
    return Decision(
        name=question.name,
        kind=question.kind,
        value=value,
        confidence=confidences.get(question.name) or 0.0,
        spans=places_of(value, source) if value else (),
    )
