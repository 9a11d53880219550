"""What a file of predictions is called: after the decoder and all that is unusual about it."""

from __future__ import annotations

import re
from dataclasses import asdict

from pipedec_cli.data.places import STDIN
from pipedec_cli.data.reading import real
from pipedec_cli.jobs.generate import GenerateSettings
from pipedec_cli.pipeline.grid import Limits, Method
from pipedec_cli.pipeline.schedule import Whole


def name_of(settings: GenerateSettings, method: Method, usual: Limits, draft: str | None) -> str:
    """Such as ``pipelined-delay2-stop-first60``; in exact mode, with a `draft` of some kind, the method is that draft's."""
    plain, data = isinstance(method.schedule, Whole), None
    if settings.data is not None:  # a file's name without its endings, a data set's without its owner
        name = real(settings.data).name
        data = "stdin" if settings.data == STDIN else name.removesuffix(".gz").rpartition(".")[0] or name
    limits = asdict(method.limits).items()
    kind = (draft or "sequential") if plain else f"pipelined-{method.schedule.name}"
    parts = [
        draft and "exact",
        kind,
        method.empty_rows if method.empty_rows != "retry" else None,
        "norepeat" if method.stop_on_repeat else None,
        f"minprob{method.min_start_prob:g}" if method.min_start_prob else None,
        *(f"{name.replace('_', '')}{limit}" for name, limit in limits if limit != getattr(usual, name)),
        "unconstrained" if settings.unconstrained else None,
        settings.max_source_tokens and f"source{settings.max_source_tokens}",
        settings.dtype if settings.dtype != "float32" else None,
        settings.model and real(settings.model).name,
        settings.exact and real(settings.exact).name,
        "text" if settings.text else data,
        settings.split if settings.split != "test" else None,
        settings.limit and f"first{settings.limit}",
    ]
    return re.sub(r"[^\w.-]+", "-", "-".join(map(str, filter(None, parts))))
