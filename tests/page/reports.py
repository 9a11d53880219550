"""Reports whose texts were written by the decoding loop from a script, with their grids, for pages to be made of."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pipedec_cli.compare.comparison import Report
from pipedec_cli.compare.entry import Entry, Quality, Role
from pipedec_cli.compare.runners import EngineRunner
from pipedec_cli.data.records import Generated, Record
from pipedec_cli.metrics.rouge import Rouge
from pipedec_cli.metrics.scoring import Predictions, score_run
from pipedec_cli.pipeline.decode import Finished, Stepped, decode
from pipedec_cli.pipeline.exact import Verify
from pipedec_cli.pipeline.grid import Limits, Method
from pipedec_cli.pipeline.schedule import Fixed, Whole
from tests.compare.decoders import timing
from tests.fakes import BOS, EOS, ScriptedModel
from tests.jobs.report.reports import make_report, scored_as_objects
from tests.view.scripts import Script

#: Each example's source, its target's subsequences, and what the pipelined decoder
#: writes.
Example = tuple[str, Sequence[str], Sequence[str]]
EXAMPLES: Sequence[Example] = (
    (
        "a mill",
        ["The mill is cheap .", "It is old ."],
        ["The mill is cheap .", "It is old ."],
    ),
    (
        "three ships",
        ["One is red .", "Two are blue .", "Go !"],
        ["One is red .", "One is red !"],
    ),
    (
        "birds",
        ["They sing .", "They fly ."],
        ["They sing all day long .", "They fly .", "They fly ."],
    ),
    ("nothing", ["No ."], ["No ."]),
)
LIMITS = Limits(None, None, 50)
#: What there is to decode with, by name.
METHODS: dict[str, Method | Verify] = {
    "sequential": Method(Whole(), BOS, EOS, LIMITS),
    "Δt = 1": Method(Fixed(1), BOS, EOS, Limits(6), "stop"),
    "Δt = 2": Method(
        Fixed(2), BOS, EOS, Limits(None, 3, 50), "stop"
    ),  # cuts the third example
    "exact-source": Verify(BOS, EOS, LIMITS),
}


def traced(
    name: str, examples: Sequence[Example], *, trace: bool = True, **more: Any
) -> Entry:
    """A decoder that has written its texts, with an engine's runner that would not run."""
    method, role = METHODS[name], more.pop("role", "pipelined")
    alone = role in ("baseline", "exact")
    written = [[" ".join(target)] if alone else made for _, target, made in examples]
    script = Script(*([text.split() for text in texts] for texts in written))
    if isinstance(method, Verify):
        method = Verify(BOS, EOS, LIMITS, drafts=_drafts(script))
    sources = [(number, [number]) for number in range(len(examples))]
    events = decode(ScriptedModel(script.scripts), sources, method, 2)
    grids = _grids(events, exact=role == "exact")
    made = []
    for number, ((source, target, _), texts) in enumerate(
        zip(examples, written, strict=True)
    ):
        segments = tuple(target if alone else [text for text in texts if text])
        record = Record(
            f"e{number}", source, " ".join(target), tuple(target), (), f"f:{number}"
        )
        text = " ".join(segments)
        more_of_it = grids[number] if trace else {}
        made.append(
            Generated(
                text=text, segments=segments, record=record, index=number, **more_of_it
            )
        )
    run = Predictions(Path("x.jsonl"), name, made, "records", {})
    decoder: Any = SimpleNamespace(
        text=SimpleNamespace(decode=script.words, vocabulary=script.vocabulary),
        method=lambda: METHODS["Δt = 1"],
    )
    plain = SimpleNamespace(prompted=False)
    decoder.checkpoint = SimpleNamespace(
        bos=BOS, eos=EOS, name=name, opener=BOS, backbone=plain
    )
    decoder.weights = SimpleNamespace(kernels="none", dtype="torch.float32")
    return Entry(
        name=name,
        role=role,
        runner=EngineRunner(decoder, {}),
        quality=Quality(score_run(run, Rouge(), on_example=lambda: None)),
        timings={1: timing([4.0 if alone else 1.5], 20, 0.5, examples=10)},
        **more,
    )


def traced_report(
    examples: Sequence[Example] = EXAMPLES,
    names: Sequence[str] = tuple(METHODS),
    *,
    untraced: Sequence[str] = (),
    **more: Any,
) -> Report:
    """Every kind of decoder that a report has, and what each made of the examples."""
    roles: dict[str, Role] = {"sequential": "baseline", "exact-source": "exact"}
    entries = [
        traced(
            name,
            examples,
            trace=name not in untraced,
            role=roles.get(name, "pipelined"),
            command=name,
        )
        for name in names
    ]
    entries[1:] = [
        replace(one, gains=one.gains_over(entries[0])) for one in entries[1:]
    ]
    return make_report(**{"entries": tuple(entries), "by_subsequences": {}, **more})


def objects_report() -> Report:
    """A report on an object, whose fields come in another order than the target's, one with another value."""
    right = ["name: Fitzbillies", "rating: 3", "area: riverside"]
    made = ["name: The Eagle", "area: riverside", "rating: 3"]
    report = traced_report(
        [("a pub", right, made)], ["sequential", "Δt = 1"], metric="fields_f1"
    )
    return replace(report, entries=tuple(map(scored_as_objects, report.entries)))


def _drafts(script: Script) -> dict[int, list[int]]:
    """The texts, with a wrong third token."""
    drafts = {}
    for number, (ids,) in enumerate(script.scripts):
        drafts[number] = [*ids[:2], ids[0], *ids[3:], EOS]
    return drafts


def _grids(events: Iterable[object], *, exact: bool) -> dict[int, dict[str, Any]]:
    """What a trace holds of each example."""
    steps: dict[int, list[Any]] = {}
    grids = {}
    for event in events:
        if isinstance(event, Stepped):
            steps.setdefault(event.example, []).append(event.step)
        elif isinstance(event, Finished):
            own = steps[event.example]
            gone = [(one.number, slot) for one in own for slot in one.taken_back]
            grids[event.example] = {
                "grid": tuple(
                    (row.start, tuple(row.tokens)) for row in event.grid.subsequences
                ),
                "steps": event.grid.steps,
                "tokens": event.grid.tokens,
                "truncated": event.grid.truncated,
                "calls": tuple(one.time for one in own) if exact else (),
                "taken_back": tuple(
                    (n, slot.subsequence, slot.time, slot.token) for n, slot in gone
                ),
            }
    return grids
