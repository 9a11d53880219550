"""Exact mode as a runner: the plain tokens, with what drafting takes counted in, here and in a child process."""

import json
import time

import pytest

from pipedec_cli.evaluate.advice import exact_advice
from pipedec_cli.evaluate.entry import TextAgreement
from pipedec_cli.evaluate.runners import (
    SEPARATOR,
    EngineRunner,
    ExactRunner,
    from_spec,
    make_runner,
    source_ids,
)
from pipedec_cli.evaluate.timing import Gain, time_together
from pipedec_cli.model.decoder import load
from pipedec_cli.model.exact import ExactDecoder
from tests.checkpoints import SOURCES, tiny_checkpoint
from tests.evaluate.decoders import entry


@pytest.fixture(scope="module")
def decoders(tmp_path_factory):
    """An ordinary T5 and a pipelined decoder with another prefix, so that the same source has other ids."""
    folder = tmp_path_factory.mktemp("exact")
    return {kind: load(tiny_checkpoint(folder / kind, decoder=kind)) for kind in ("sequential", "pipelined")}


@pytest.mark.parametrize("draft", ["pipelined", "source", "jacobi"])
def test_the_tokens_are_the_plain_ones_and_drafting_counts(decoders, draft):
    exact = ExactDecoder(decoders["sequential"], decoders.get(draft, draft))
    runner = make_runner(exact, {"delay": 1})
    assert isinstance(runner, ExactRunner)
    sources = [source_ids(exact, source) for source in SOURCES]
    plain = EngineRunner(decoders["sequential"], {})
    own = [source_ids(decoders["sequential"], source) for source in SOURCES]
    contest = {"exact": (runner, sources), "plain": (plain, own)}
    for size in (1, 3):
        found = time_together(contest, batch_size=size, repeats=1, rest=lambda: None)
        made, usual = found["exact"], found["plain"]
        assert [one.tokens for one in made.outputs] == [one.tokens for one in usual.outputs]
        assert (made.draft_calls > 0, usual.draft_calls) == (draft == "pipelined", 0)
        assert made.decoder_calls - made.draft_calls <= usual.decoder_calls
        assert made.rows_per_call >= usual.rows_per_call
        if size == 1:
            assert made.decoder_calls == sum(one.steps for one in made.outputs)
            assert usual.rows_per_call == 1
    factory, payload = runner.spec()
    assert factory.endswith("runners:from_spec")
    again = from_spec(**json.loads(json.dumps(payload)))
    assert again.settings == runner.settings
    made = [one.run(sources, 2, time.perf_counter).outputs for one in (again, runner)]
    assert [one.tokens for one in made[0]] == [one.tokens for one in made[1]]


def test_a_source_is_in_the_ids_of_both_models(decoders):
    exact = ExactDecoder(decoders["sequential"], decoders["pipelined"])
    own = decoders["sequential"].text.source(SOURCES[0])[0]
    theirs = decoders["pipelined"].text.source(SOURCES[0])[0]
    assert source_ids(exact, SOURCES[0]) == [*own, SEPARATOR, *theirs]
    assert source_ids(ExactDecoder(decoders["sequential"], "source"), SOURCES[0]) == own


def in_exact_mode(name, speedup, low, equal=5):
    gains = {1: Gain(speedup, low, speedup, None, None, 1.0)}
    command = f"pipedec generate --exact t5 --draft {name}"
    return entry(name, "exact", gains=gains, command=command, text_agreement=TextAgreement(99.0, equal, 5))


def test_exact_advice_the_fastest_with_the_same_texts_is_named_if_it_is_faster():
    slow, unsure, other = (
        in_exact_mode("a", 0.9, 0.8),
        in_exact_mode("b", 1.2, 0.9),
        in_exact_mode("c", 3.0, 3.0, 4),
    )
    assert exact_advice([slow, unsure, other], "the plain model") == ""
    good = [in_exact_mode("source", 1.4, 1.3), in_exact_mode("jacobi", 1.6, 1.5)]
    said = exact_advice([slow, *good, other], "the plain model")
    assert said == (
        "If no word may change, jacobi (`pipedec generate --exact t5 --draft jacobi`) gives exactly the text of the plain model, "
        "1.6 times as fast."
    )
