"""How well a model decides on texts with one of many labels: scored whole, with a prior, and written token by token.

``python -m tests.trials.decisions MODEL FOLDER TEXTS FITTED`` prints a table of
docs/results.md. The folder has dev.jsonl, of which TEXTS are decided, and
train.jsonl.gz, of which FITTED fit the temperature; for a model that was trained on the
latter these are of dev.jsonl, too. Both have `source` and `target`, an object of an
`intent`.
"""

import random
import sys
from dataclasses import replace
from operator import ne
from pathlib import Path

from pipedec_cli.data.inputs import read_rows
from pipedec_cli.decoding.calibration import fit_temperature
from pipedec_cli.decoding.decisions import deciding
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
    results = decoder.texts(sources, decoder.method(), 1)
    for generated, (_, right) in zip(results, examples, strict=True):
        pairs.append(Decided(generated.probabilities["intent"], right))
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
    usual = decoder.method()
    if decoder.blind is None:
        [opening] = usual.openings
        free = replace(opening, answers=(), written=True)
        method = replace(usual, openings=(free,))
    else:
        [asked] = decoder.blind.asked
        field = asked.part.field
        text = decoder.text
        tokens = text.ids(field.enum)
        spelled = tuple(map(text.decode, tokens))
        end = decoder.blind.end
        allowed = allowed_of(text.tokenizer, end, field, spelled)

        def of_source(method, source):
            held = usual.of_source(method, source)
            [opening] = held.openings
            free = replace(opening, answers=(), written=True, allowed=allowed)
            return replace(held, openings=(free,))

        method = replace(usual, of_source=of_source)
    sources = [source for source, _ in examples]
    results = decoder.texts(sources, method, 1)
    return [generated.fields.get("intent", "") for generated in results]


def shown(name, test, fitted):
    """A row of the table: scores, and the calibration error at the fitted temperature."""
    scores = choice_scores(test)
    temperature = fit_temperature(fitted)
    divided = [each.at(temperature) for each in test]
    after = choice_scores(divided)
    figures = [scores.accuracy, scores.macro_f1, scores.ece, after.ece, temperature]
    cells = [f"{figure:.1f}" for figure in figures]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def flips(plain, labels, examples):
    """The share of examples, in per cent, that get another answer with the labels in reversed order."""
    answers = []
    for asked in (labels, labels[::-1]):
        question = Choice("intent", ASKED, asked)
        decisions = decided(deciding(plain, [question]), examples)
        answers.append([decision.best for decision in decisions])
    changed = sum(map(ne, *answers))
    return 100 * changed / len(examples)


def main(model: str, folder: Path, texts: int, fitted: int) -> None:
    """Print the table."""
    plain = load(model, device="cpu", dtype="bfloat16")
    labels = labels_in(folder)
    examples = drawn(folder / "dev.jsonl", texts)
    others = drawn(folder / "train.jsonl.gz", fitted)
    decoder = plain
    is_trained = plain.fields is not None
    if is_trained:  # on these
        drawn_both = drawn(folder / "dev.jsonl", texts + fitted)
        examples, others = drawn_both[:texts], drawn_both[texts:]
    else:
        decoder = deciding(plain, [Choice("intent", ASKED, labels)])
    print(f"{len(labels)} labels, {texts} texts, {fitted} to fit T", flush=True)
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
    print(f"| token by token | {scores.accuracy:.1f} | {scores.macro_f1:.1f} | | | |")
    if not is_trained:
        share = f"{flips(plain, labels, examples):.1f} %"
        print(
            f"{share} of the answers are others if the options come in reversed order"
        )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
