"""A report put together from what was never run."""

from dataclasses import replace

from pipedec_cli.compare import peers
from pipedec_cli.compare.advice import Advice
from pipedec_cli.compare.child import Memory
from pipedec_cli.compare.comparison import Conditions, Report, Sample, SizeRow
from pipedec_cli.compare.entry import Entry, TokenAgreement, Totals
from pipedec_cli.compare.machine import Machine
from pipedec_cli.data.paper import paper_figures
from pipedec_cli.metrics.differences import Difference
from pipedec_cli.metrics.fields import Fields
from pipedec_cli.metrics.measure import score_examples
from tests.compare.decoders import entry as made_entry
from tests.compare.decoders import scored, timing

CURVES = {
    "pipelined": [
        {"update": 5, "loss": 2.0},
        {"update": 10, "dev_loss": 1.0, "dev_score": 40.0},
    ]
}
#: Peers that are there, where one was taken out of the package.
THERE = [name for name in ("transformers", "ctranslate2") if name in peers.PEERS]
PEERS = ["transformers", "transformers:bfloat16", "ctranslate2"]
ALL = {"peers": PEERS, "recipe": "msqa", "delays": (1, 2, 3)}


def conditions(**more):
    machine = Machine("A CPU", 2, 2, 2, 2**34, None, "Linux x86_64", "3.11")
    versions = {"torch": "2.0", "ctranslate2": None}
    return Conditions(device="cpu", machine=machine, versions=versions, **more)


def entry(
    name, role="pipelined", *, seconds=1.0, calls=10, base=None, sizes=(1,), **more
):
    ours = (
        {"scored": scored([["a b c d"]]), "totals": Totals.of(1, calls, 40)}
        if role != "peer"
        else {}
    )
    made = made_entry(
        name,
        role,
        timings={
            size: timing([seconds], calls, 0.1, examples=10, size=size)
            for size in sizes
        },
        memory=Memory(100_000_000, 250_000_000, "resident memory"),
        **{**ours, **more},
    )
    return made if base is None else replace(made, gains=made.gains_over(base))


def make_report(*, peers=(), recipe=None, delays=(1, 2), **more):
    first = entry("sequential", "baseline", seconds=4.1, calls=100)
    told = {
        "row_budget_exhausted": 0.25,
        "differences": {"rougeL": Difference(-1.24, -2.0, 0.3)},
    }
    told |= {"base": first, "seconds": 1.1, "calls": 20}
    ours = [
        entry(f"Δt = {n}", command=f"pipedec generate --delay {n}", delay=n, **told)
        for n in delays
    ]
    same = {"seconds": 8.1, "calls": 100, "agreement": TokenAgreement(9, 10)}
    theirs = [entry(name, "peer", base=first, **same) for name in peers]
    rows = (
        SizeRow(2, 12, 2.0, 3, 1.5, 40.0, 41.0),
        SizeRow(10, 5, 4.0, 0, None, None, None),
    )
    figures = recipe and paper_figures(recipe)
    values = {
        "entries": (first, *ours, *theirs),
        "baseline": "the sequential model (models/sequential)",
        "metric": "rougeL",
        "subsequences_per_target": 5.0,
        "by_subsequences": {mine.name: rows for mine in ours},
        "advice": Advice(
            "take", "Take it.", ("Mind the gap.",), ours[-1].name, ours[-1].command
        ),
        "sample": Sample(10, 100, 3),
        "dtype": "float32",
        "conditions": conditions(),
        "significance": "paired bootstrap",
        "paper": figures,
    }
    return Report(**{**values, **more})


def scored_as_objects(entry: Entry) -> Entry:
    """The entry with its texts scored by their fields."""
    scored = entry.quality.scored
    assert scored is not None
    scored = replace(scored, scores=score_examples(scored.items, Fields()))
    return replace(entry, quality=replace(entry.quality, scored=scored))
