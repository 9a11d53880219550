"""Typed questions about a text: every answer has the probability that plain transformers give it, whatever stands beside it."""

import random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipedec_cli.data.errors import UserError
from pipedec_cli.decoding.decisions import deciding, decisions_of
from pipedec_cli.decoding.decoder import load
from pipedec_cli.objects.questions import Choice, Option, Predicate, Score, Text
from pipedec_cli.pipeline.decode import Admitted, Stepped
from tests.checkpoints import TOLD
from tests.decoding.decided import decisions_about
from tests.model.chats import foreign
from tests.model.told import Told

WORDS = sorted({word for source, _ in TOLD for word in source.split()})
SOURCES = ["Aromi has 5 stars.", "The Mill sells Thai food near a pub <|im_end|>", "a"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return foreign(tmp_path_factory.mktemp("foreign"))


@pytest.fixture(scope="module")
def plain(folder):
    return load(str(folder), device="cpu")


class Slow:
    """Plain transformers: each answer goes through the model by itself, behind the whole text."""

    def __init__(self, folder, *, chat):
        self.model = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.chat = chat
        end = "<|im_end|>" if chat else "a\n"
        *_, self.end = self.tokenizer.encode(end, add_special_tokens=False)

    def ids(self, source, question, label):
        """The tokens of the whole text with an answer; special tokens in a user's words would be special."""
        assert "<|" not in source + question.words + label
        if self.chat:
            turn = {"role": "user", "content": f"{source}\n\n{question.words}"}
            text = self.tokenizer.apply_chat_template(
                [turn], tokenize=False, add_generation_prompt=True
            )
            return self.tokenizer.encode(text + label, add_special_tokens=False)
        text = f"Text: {source}\n{question.words}\nAnswer:"
        return self.tokenizer.encode(f"{text} {label}" if label else text)

    def score(self, ids, begin):
        """The logarithm of the probability of the tokens from a place on, and of the end behind them."""
        whole = torch.tensor([[*ids, self.end]])
        with torch.inference_mode():
            logits = self.model(whole).logits[0]
        logits = logits.log_softmax(-1)
        places = range(begin, len(ids) + 1)
        return sum(logits[place - 1, whole[0, place]].item() for place in places)

    def probabilities(self, source, question, temperature=1.0):
        alone = self.ids(source, question, "")
        rows = [self.ids(source, question, label) for label in question.labels]
        begin = 0
        for column in zip(alone, *rows, strict=False):
            if len(set(column)) > 1:
                break
            begin += 1
        scores = [self.score(row, begin) / temperature for row in rows]
        exact = torch.tensor(scores, dtype=torch.float64)
        shares = exact.softmax(0).tolist()
        lengths = [len(row) - begin for row in rows]
        named = dict(zip(question.labels, shares, strict=True))
        return named, lengths


def drawn(count, seed):
    """Questions with answers of different lengths."""
    draw = random.Random(seed)
    questions = []
    for number in range(count):
        labels = {}
        while len(labels) < draw.randint(2, 6):
            length = draw.choice([1, 1, 2, 3])
            label = " ".join(draw.choices(WORDS, k=length))
            labels.setdefault(label.casefold(), label)
        length = draw.randint(1, 5)
        about = " ".join(draw.choices(WORDS, k=length))
        meant = [*labels.values()]
        if number % 3 == 0:
            meant[0] = Option(meant[0], "it stands there")
        questions.append(Choice(f"question {number}", f"Which is {about}?", meant))
    questions.append(Predicate("open", "Is it open?"))
    questions.append(Score("stars", "", ("one", "two", "three")))
    return questions


def assert_equal_to_the_slow_reading(folder, plain, count, chat):
    questions = drawn(count, seed=count)
    slow = Slow(folder, chat=chat)
    lengths = set()
    for first in range(0, len(questions), 11):
        asked = questions[first : first + 11]
        chance = random.Random(first)
        source = " ".join(chance.choices(WORDS, k=9))
        decoder = deciding(plain, asked, chat=chat)
        [decisions] = decisions_about(decoder, [source])
        for question, decision in zip(asked, decisions, strict=True):
            shares, tokens = slow.probabilities(source, question)
            lengths.update(tokens)
            assert decision.probabilities == pytest.approx(shares, abs=1e-5)
            assert [*decision.probabilities] == [*question.labels]
    return lengths


@pytest.mark.parametrize("chat", [True, False])
def test_each_answer_has_the_probability_that_transformers_give_it(folder, plain, chat):
    assert_equal_to_the_slow_reading(folder, plain, 20, chat)


@pytest.mark.slow
@pytest.mark.parametrize("chat", [True, False])
def test_so_have_the_answers_to_500_questions_of_1_to_12_tokens(folder, plain, chat):
    lengths = assert_equal_to_the_slow_reading(folder, plain, 500, chat)
    assert lengths.issuperset(range(1, 13))


@pytest.mark.parametrize("chat", [True, False])
def test_probabilities_do_not_depend_on_the_batch_nor_on_what_else_is_asked(
    plain, chat
):
    questions = drawn(6, seed=3)
    decoder = deciding(plain, questions, chat=chat)
    alone = [*decisions_about(decoder, SOURCES, 1)]
    together = [*decisions_about(decoder, SOURCES * 3, 8)]
    assert together == alone * 3
    for number, question in enumerate(questions):
        by_itself = deciding(plain, [question], chat=chat)
        others = decisions_about(by_itself, SOURCES)
        for decisions, [decision] in zip(alone, others, strict=True):
            beside = decisions[number].probabilities
            assert decision.probabilities == pytest.approx(beside, abs=1e-6)


def events_of(decoder, source, kind):
    events = decoder.run([source], decoder.method(), 1)
    return [event for event in events if isinstance(event, kind)]


def test_all_answers_of_all_questions_take_one_call_behind_one_reading(plain):
    questions = drawn(12, seed=1)
    decoder = deciding(plain, questions)
    calls = events_of(decoder, "The Mill is a pub.", Stepped)
    assert len(calls) == 1


def test_what_was_read_for_some_questions_is_not_read_again_for_others(plain):
    source = "The Mill is a pub. " * 9
    first = deciding(plain, [Predicate("Is it open?")])
    list(decisions_about(first, [source]))
    other = deciding(plain, [Choice("food", choices=("Thai", "Greek"))])
    [admitted] = events_of(other, source, Admitted)
    assert admitted.grid.cached > 50


@pytest.mark.slow
def test_ten_thousand_answers_are_scored_in_calls_that_have_room_for_them(plain):
    labels = [f"{number:05}" for number in range(10_000)]
    decoder = deciding(plain, [Choice("number", choices=labels), Predicate("open")])
    calls = events_of(decoder, "It is 00017.", Stepped)
    assert len(calls) > 1
    [[number, is_open]] = decisions_about(decoder, ["It is 00017."])
    assert len(number.probabilities) == 10_000
    total = sum(number.probabilities.values())
    assert total == pytest.approx(1)
    question = Predicate("open")
    by_itself = deciding(plain, [question])
    [[alone]] = decisions_about(by_itself, ["It is 00017."])
    assert is_open.probabilities == pytest.approx(alone.probabilities, abs=1e-6)


def told(decoder, source, likely=()):
    """The decisions of a model that finds these answers likely."""
    [generated] = told_texts(decoder, source, likely)
    return decisions_of(decoder, generated, source)


def told_texts(decoder, source, likely):
    decoder._engines = {1: Told(decoder, likely)}
    return [*decoder.texts([source], decoder.method(), 1)]


def test_each_kind_of_question_has_its_answer(plain):
    levels = [Option("calm", "says nothing"), "annoyed", "furious"]
    questions = [
        Predicate("open", "Is it open?"),
        Choice("topic", choices=("invoice", "delivery")),
        Score("anger", levels=levels),
    ]
    decoder = deciding(plain, questions)
    likely = ["yes", "delivery", "furious"]
    is_open, topic, anger = told(decoder, "a", likely)
    assert is_open.value == is_open.probabilities["yes"] > 0.9
    assert topic.value == "delivery"
    assert topic.confidence == max(topic.probabilities.values())
    mean = 0.0
    for level, chance in enumerate(anger.probabilities.values(), 1):
        mean += level * chance
    assert anger.value == pytest.approx(mean)
    assert anger.value > 2.9
    assert anger.kind == "score"
    assert anger.name == "anger"


def test_a_text_beside_decisions_is_a_part_of_the_source_and_says_where(plain):
    questions = [Text("order", "Which order?", grounded=True), Predicate("open")]
    source = "Order 4471 came."
    decoder = deciding(plain, questions)
    [[decision, _]] = decisions_about(decoder, [source])
    assert decision.kind == "text"
    if decision.value is not None:
        start, end = decision.spans[0]
        assert source[start:end] == decision.value


def test_a_temperature_divides_the_scores_and_leaves_the_best_answer(folder, plain):
    question = Choice("food", choices=("Thai", "Greek", "pub food"))
    decoder = deciding(plain, [question], temperature=4.0)
    [[decision]] = decisions_about(decoder, ["a pub"])
    slow = Slow(folder, chat=True)
    shares, _ = slow.probabilities("a pub", question, 4.0)
    assert decision.probabilities == pytest.approx(shares, abs=1e-5)


def test_a_prior_is_the_score_behind_an_empty_text(plain):
    question = Choice("food", choices=("Thai", "Greek", "pub food"))
    decoder = deciding(plain, [question], prior=True)
    without_prior = deciding(plain, [question])
    [[without], [of_nothing]] = decisions_about(without_prior, ["a pub", ""])
    ratios = {}
    for label, share in without.probabilities.items():
        ratios[label] = share / of_nothing.probabilities[label]
    whole = sum(ratios.values())
    expected = {label: ratio / whole for label, ratio in ratios.items()}
    [[decision], [even]] = decisions_about(decoder, ["a pub", ""])
    assert decision.probabilities == pytest.approx(expected)
    assert decision.value == max(expected, key=expected.get)
    thirds = dict.fromkeys(question.labels, 1 / 3)
    assert even.probabilities == pytest.approx(thirds)


def test_words_of_users_are_text_and_never_template(plain):
    """Special tokens in what is asked and answered end no turn."""
    mark = "<|im_end|>"
    choices = [Option(f"{mark}a", mark), "b", "c {source} {question}"]
    questions = [Choice(f"it {mark}", f"Which {mark} {{source}}?", choices)]
    decoder = deciding(plain, questions)
    end = plain.checkpoint.tokenizer.convert_tokens_to_ids(mark)
    [known] = decoder.plan.known
    ends = known.count(end)
    assert ends == 1, "that of the template"
    [[decision]] = decisions_about(decoder, [f"a {mark} b"])
    total = sum(decision.probabilities.values())
    assert total == pytest.approx(1)


@pytest.mark.parametrize(
    "choices",
    [
        ("a", " "),
        ("Yes", "yes "),
        ("a",),
        [str(number) for number in range(10_001)],
        ("a", "b" * 3_000),
        "ab",
        (1, 2),
    ],
)
def test_choices_that_cannot_be_told_apart_or_are_too_many_are_refused(choices):
    with pytest.raises(UserError) as caught:
        Choice("kind", choices=choices)
    assert "kind" in caught.value.where


@pytest.mark.parametrize(
    "levels", [[str(number) for number in range(11)], ("low", "Low"), None]
)
def test_levels_that_cannot_be_told_apart_or_are_too_many_are_refused(levels):
    with pytest.raises(UserError) as caught:
        Score("anger", levels=levels)
    assert "anger" in caught.value.where


@pytest.mark.parametrize("words", [(3, ""), ("open", 3), ("open", None)])
def test_a_name_and_instructions_are_texts(words):
    with pytest.raises(UserError):
        Predicate(*words)


@pytest.mark.parametrize(
    "questions",
    [[], [Predicate(" ")], [Predicate("a"), Choice("a", choices=["b", "c"])]],
)
def test_questions_need_names_of_their_own(plain, questions):
    with pytest.raises(UserError):
        deciding(plain, questions)
