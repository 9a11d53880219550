"""Texts held against the baseline's."""

import pytest

from pipedec_cli.data.records import Generated
from pipedec_cli.evaluate.entry import TextAgreement


def between(*decoders):
    return TextAgreement.between(
        *([Generated(text=text, segments=()) for text in texts] for texts in decoders)
    )


def test_equal_texts_are_counted_and_others_held_against_the_baselines_as_rouge_does():
    usual = ["a red cat runs home", "two dogs sleep", "", "so it is"]
    found = between(["a red cat ran home", "two  dogs sleep ", "", "other words"], usual)
    assert (found.equal, found.of) == (2, 4)
    # four of five words in their order, two equal texts of which one is empty, and nothing in common
    assert found.rouge_l == pytest.approx(100 * (0.8 + 1 + 1 + 0) / 4)
    assert found.line == "ROUGE-L 70.0, 50% equal"


def test_texts_that_rouge_cannot_read_are_counted_alone():
    found = between(["红色的猫", "一只狗"], ["红色的猫", "两只狗"])
    assert found == TextAgreement(None, 1, 2)
    assert found.line == "50% equal"
