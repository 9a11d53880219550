"""`pipedec bench --fidelity`: what a dtype changes on given texts, beside an independent reading by the full pass."""

import json

import pytest
import torch

from pipedec_cli.model.checkpoint import load_checkpoint
from pipedec_cli.model.training.loss import full_states, head_of
from pipedec_cli.pipeline.schedule import Fixed, place
from tests.checkpoints import TOLD, tiny_checkpoint
from tests.running import refused, run, write_lines

ROWS = [{"source": source, "target": list(segments)} for source, segments in TOLD]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_checkpoint(tmp_path_factory.mktemp("fidelity") / "pipelined", delay=2)


def table_of(folder, path, *more):
    return json.loads(run("bench", "--model", folder, "--fidelity", path, "--json", *more).stdout)


def surprises(checkpoint, source, segments):
    """−ln p of every token of a text whose subsequences lie Δt = 2 apart, and of the empty one behind them."""
    codec, bos, eos = checkpoint.codec(), checkpoint.bos, checkpoint.eos
    texts = [*codec.ids(segments), []]
    starts = place(Fixed(2), [*map(len, texts)])
    cells = [
        (token, number, start + offset, label)
        for number, (start, text) in enumerate(zip(starts, texts, strict=True), 1)
        for offset, (token, label) in enumerate(zip([bos, *text, eos], [*text, eos, -100], strict=True))
    ]
    tokens, subsequence, times, labels = torch.tensor(cells).T
    ids = torch.tensor([codec.source(source)[0]])
    with torch.no_grad():
        states = full_states(
            checkpoint.model, ids, torch.ones_like(ids), tokens[None], subsequence[None], times[None]
        )
    return torch.nn.functional.cross_entropy(head_of(checkpoint.model)(states)[0], labels, reduction="none")[
        labels >= 0
    ]


def test_float32_is_itself_and_its_perplexity_is_that_of_the_full_pass(folder, tmp_path):
    path = write_lines(tmp_path / "texts.jsonl", *ROWS)
    table = table_of(folder, path, "--dtypes", "bfloat16", "--set", f"out={tmp_path}/out.json")
    assert table == json.loads((tmp_path / "out.json").read_text())
    exact, narrow = table["dtypes"]
    expected = torch.cat([surprises(load_checkpoint(str(folder)), *told) for told in TOLD])
    assert (exact["dtype"], exact["kl"], exact["equal"]) == ("float32", 0.0, 1.0)
    assert exact["perplexity"] == pytest.approx(expected.mean().exp().item(), rel=1e-4)
    assert (table["texts"], table["places"]) == (len(TOLD), len(expected))
    assert 0 < narrow["kl"] < 0.01
    assert 0.9 < narrow["equal"] <= 1


def test_reading_ends_with_the_tokens_that_were_asked_for(folder, tmp_path):
    path = write_lines(tmp_path / "texts.jsonl", *ROWS)
    few = table_of(folder, path, "--dtypes", "float32", "--set", "fidelity_tokens=7")
    assert (few["texts"], few["places"], len(few["dtypes"])) == (1, 7, 1)
    shown = run("bench", "--model", folder, "--fidelity", path, "--dtypes", "bfloat16").stdout
    for words in ("KL from", "first", "perplexity", "bfloat16", f"{len(TOLD)} texts"):
        assert words in shown


def test_a_decoder_only_model_needs_no_source(tmp_path):
    folder = tiny_checkpoint(tmp_path / "llama", family="llama")
    path = write_lines(tmp_path / "texts.jsonl", *({"target": row["target"]} for row in ROWS))
    assert table_of(folder, path, "--dtypes", "bfloat16")["dtypes"][1]["kl"] > 0


def test_texts_that_cannot_be_compared_are_refused(folder, tmp_path):
    path = write_lines(tmp_path / "texts.jsonl", ROWS[0], {"source": "a"})
    told = refused("bench", "--model", folder, "--fidelity", path)
    assert f"{path}:2: field 'target' is missing" in told
    write_lines(path, {"target": "a"})
    assert "field 'source' is missing" in refused("bench", "--model", folder, "--fidelity", path)
    assert "fresh weights" in refused("bench", "--fidelity", path)
