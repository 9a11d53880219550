"""A decoder in exact mode: the texts are its own greedy ones and those of transformers, whatever drafts them."""

import pytest
import torch

from pipedec_cli.data.records import Generated
from pipedec_cli.decoding.decoder import Decoder
from pipedec_cli.decoding.exact import ExactDecoder, measured
from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.pipeline.decode import Stepped
from tests.checkpoints import SOURCES, tiny_checkpoint
from tests.words import refusing


@pytest.fixture(scope="module")
def decoders(tmp_path_factory):
    """A sequential T5 and a pipelined decoder, which have learnt the same texts."""
    folder, made = tmp_path_factory.mktemp("tiny"), {}
    for kind in ("sequential", "pipelined"):
        path = tiny_checkpoint(folder / kind, decoder=kind, level="sentence")
        made[kind] = Decoder(load_checkpoint(str(path)))
    return made


@pytest.mark.parametrize("draft", ["pipelined", "source", "jacobi"])
@pytest.mark.parametrize("batch_size", [1, 8])
def test_a_decoder_in_exact_mode_gives_the_plain_texts_and_counts_the_drafts_calls(
    decoders, draft, batch_size
):
    """The plain texts are those of transformers."""
    model, bos = (
        decoders["sequential"].checkpoint.model,
        decoders["sequential"].checkpoint.bos,
    )
    plain = list(decoders["sequential"].texts(SOURCES * 2))
    exact = ExactDecoder(decoders["sequential"], decoders.get(draft, draft))
    exact.drafter.costs = (1.0,) * 9
    made = list(exact.texts(SOURCES * 2, batch_size=batch_size))
    alike = (
        "index",
        "text",
        "segments",
        "tokens",
        "truncated",
        "grid",
        "source_ids",
        "source_cut",
    )
    for one, other in zip(made, plain, strict=True):
        assert [getattr(one, name) for name in alike] == [
            getattr(other, name) for name in alike
        ]
        given = {"do_sample": False, "num_beams": 1, "max_new_tokens": 512}
        expected = model.generate(torch.tensor([one.source_ids]), **given)[0].tolist()
        assert [(0, tuple(expected[1:]))] == list(one.grid) and expected[0] == bos
    drafted = [one.draft_steps for one in made]
    if draft == "pipelined":
        assert drafted == [
            one.steps for one in decoders["pipelined"].texts(SOURCES * 2)
        ]
        # The draft is right: its calls, and one for every nine tokens.
        assert [one.steps for one in made] == [
            one.draft_steps + -(-(one.tokens + 1) // 9) for one in made
        ]
    else:
        assert drafted == [None] * len(made)
        assert all(
            one.steps <= other.steps for one, other in zip(made, plain, strict=True)
        )


@pytest.mark.parametrize("batch_size", [1, 3])
def test_how_far_every_check_came_and_the_guesses_in_vain_are_told(
    decoders, batch_size
):
    exact = ExactDecoder(decoders["sequential"], "jacobi")
    steps, vain = {}, 0
    for item in exact.run(SOURCES, batch_size=batch_size):
        if isinstance(item, Stepped):
            steps.setdefault(item.example, []).append(item.step)
        if isinstance(item, Generated):
            own = steps[item.index]
            assert list(item.calls) == [step.time for step in own]
            assert (item.steps, item.tokens + 1) == (len(item.calls), item.calls[-1])
            assert [place for *place, _ in item.taken_back] == [
                [step.number, 1, slot.time] for step in own for slot in step.taken_back
            ]
            vain += len(item.taken_back)
    assert vain > 0


def test_what_guesses_cost_is_measured_once_for_a_batch_size_and_leaves_the_engine_as_it_was(
    decoders,
):
    exact = ExactDecoder(decoders["sequential"], "source")
    costs = measured(exact, 3)
    assert len(costs) == 16
    assert costs[0] == 1.0 == min(costs)
    assert list(costs) == sorted(costs)
    plain = decoders["sequential"].texts(SOURCES)
    assert [one.text for one in exact.texts(SOURCES, batch_size=3)] == [
        one.text for one in plain
    ]


def test_drafts_are_made_by_the_method_of_the_run_and_a_text_is_cut_where_the_plain_one_is(
    decoders,
):
    exact, drafter = (
        ExactDecoder(decoders["sequential"], decoders["pipelined"]),
        decoders["pipelined"],
    )
    for limits in ({"delay": 3}, {"delay": 1, "max_tokens": 5}):
        method = exact.method(**limits)
        assert method == drafter.method(**limits)
        made = list(exact.texts(SOURCES, method))
        assert [one.draft_steps for one in made] == [
            one.steps for one in drafter.texts(SOURCES, method)
        ]
    plain = decoders["sequential"].texts(
        SOURCES, decoders["sequential"].method(max_tokens=5)
    )
    assert [(one.text, one.truncated) for one in made] == [
        (one.text, one.truncated) for one in plain
    ]


def test_exact_mode_wants_a_sequential_t5_and_no_other_one_as_its_drafter(decoders):
    sequential, pipelined = decoders["sequential"], decoders["pipelined"]
    for plain, draft in (
        (pipelined, "source"),
        (sequential, sequential),
        (sequential, "guess"),
    ):
        with refusing():
            ExactDecoder(plain, draft)
