"""How well a model decides without training, on texts with one of many labels: scored whole, with a prior, and written token by token.

``python -m tests.trials.decisions MODEL FOLDER TEXTS FITTED`` prints a table of
docs/results.md. The folder has dev.jsonl, whose first TEXTS are decided, and
train.jsonl.gz, of which FITTED fit the temperature. Both have `source` and `target`,
an object of an `intent`.
"""

import random
import sys
from dataclasses import replace
from pathlib import Path

from pipedec_cli.data.inputs import read_rows
from pipedec_cli.decoding.calibration import fit_temperature
from pipedec_cli.decoding.decisions import decide, deciding
from pipedec_cli.decoding.decoder import load
from pipedec_cli.metrics.choices import Decided, choice_scores
from pipedec_cli.objects.grammar import allowed_of
from pipedec_cli.objects.questions import Choice

ASKED = "What does the user want?"
#: A source and its label.
Example = tuple[str, str]


def drawn(path, count):
    """So many examples of a file, at random, the same each time."""
    values = [row.value for row in read_rows(path)]
    chance = random.Random(0)
    chosen = chance.sample(values, count)
    return [(value["source"], value["target"]["intent"]) for value in chosen]


def labels_in(folder):
    """All labels, by name."""
    labels = set()
    for name in ("dev.jsonl", "train.jsonl.gz"):
        for row in read_rows(folder / name):
            labels.add(row.value["target"]["intent"])
    return sorted(labels)


def decided(decoder, examples):
    """What a decoder decides of each."""
    sources = [source for source, _ in examples]
    pairs = []
    labels = [label for _, label in examples]
    decisions = decide(decoder, sources, 1)
    for [decision], right in zip(decisions, labels, strict=True):
        pairs.append(Decided(decision.probabilities, right))
    return pairs


def less(prior, each):
    """A decision without what is probable behind an empty text."""
    ratios = {}
    for label, share in each.probabilities.items():
        usual = max(prior.probabilities[label], 1e-300)
        ratios[label] = share / usual
    total = sum(ratios.values())
    shares = {label: ratio / total for label, ratio in ratios.items()}
    return Decided(shares, each.right)


def written(decoder, examples):
    """The labels that a model writes, the most probable token at a time."""
    plan = decoder.plan
    [asked] = plan.asked
    part = asked.part
    field = part.field
    text = decoder.text
    spelled = tuple(map(text.decode, text.ids(field.enum)))
    tokenizer = text.tokenizer
    allowed = allowed_of(tokenizer, plan.end, field, spelled)
    usual = decoder.method()

    def of_source(method, source):
        held = usual.of_source(method, source)
        [opening] = held.openings
        free = replace(opening, answers=(), written=True, allowed=allowed)
        return replace(held, openings=(free,))

    sources = [source for source, _ in examples]
    method = replace(usual, of_source=of_source)
    made = decoder.texts(sources, method, 1)
    return [generated.fields.get("intent", "") for generated in made]


def shown(name, test, fitted):
    """A row of the table: scores, and the calibration error at the fitted temperature."""
    scores = choice_scores(test)
    temperature = fit_temperature(fitted)
    divided = [each.at(temperature) for each in test]
    after = choice_scores(divided)
    figures = [scores.accuracy, scores.macro_f1, scores.ece, after.ece, temperature]
    cells = [f"{figure:.1f}" for figure in figures]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main(model, folder, texts, fitted):
    """Print the table."""
    plain = load(model, device="cpu", dtype="bfloat16")
    labels = labels_in(folder)
    examples = drawn(folder / "dev.jsonl", texts)
    others = drawn(folder / "train.jsonl.gz", fitted)
    decoder = deciding(plain, [Choice("intent", ASKED, labels)])
    count = len(labels)
    print(f"{count} labels, {texts} texts, {fitted} of training", flush=True)
    print("| | right, % | macro F1 | ECE, % | ECE at T, % | T |")
    print("|---|---|---|---|---|---|")
    test = decided(decoder, examples)
    fit = decided(decoder, others)
    [prior] = decided(decoder, [("", "")])
    shown("scored whole", test, fit)
    shown(
        "scored whole, less the prior",
        [less(prior, each) for each in test],
        [less(prior, each) for each in fit],
    )
    answers = written(decoder, examples)
    certain = []
    for answer, (_, right) in zip(answers, examples, strict=True):
        certain.append(Decided({answer: 1.0}, right))
    scores = choice_scores(certain)
    figures = f"{scores.accuracy:.1f} | {scores.macro_f1:.1f}"
    print(f"| token by token | {figures} | | | |")
    turned = deciding(plain, [Choice("intent", ASKED, labels[::-1])])
    others = decided(turned, examples)
    flips = 0
    for each, other in zip(test, others, strict=True):
        flips += each.best != other.best
    share = f"{100 * flips / texts:.1f} %"
    print(f"{share} of the answers are others if the options come in reversed order")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
