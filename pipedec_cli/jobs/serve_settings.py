"""The settings of `pipedec serve`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipedec_cli.jobs.generate_settings import RunSettings
from pipedec_cli.jobs.settings import key, option

_server = partial(option, panel="Server")


@dataclass(frozen=True, kw_only=True)
class ServeSettings(RunSettings):
    """The settings of `pipedec serve`. The settings of `generate` that say how to decode are keys here."""

    shown = frozenset(
        {"model", "dtype", "device", "batch_size", "host", "port", "name", "api_key_file", "insecure"}
        | {"queue", "grace", "workspace", "config", "set_keys"}
    )
    hidden = frozenset(
        {"data", "plain", "split", "limit", "skip_invalid", "source_field", "target_field", "id_field"}
        | {"schema", "fields", "shots", "ask", "questions", "calibrate", "confidence", "spans"}
        | {"out", "trace", "recipe", "as_json", "quiet"}
    )

    host: str = _server("127.0.0.1", "Where to listen; others than this machine need a key.", metavar="HOST")
    port: int = _server(8000, "The port; 0 takes a free one.", min=0, max=65_535)
    name: str | None = _server(None, "The model's name for clients [default: its file or folder].")
    api_key_file: Path | None = _server(None, "A file with a key a line. A client must send one of them.")
    insecure: bool = _server(False, "Listen to other machines without a key.")
    batch_size: int = _server(16, "Requests decoded at the same time.", min=1, max=4096)
    queue: int = _server(64, "Requests that may wait for a place. Others are refused.", min=0, max=100_000)
    grace: float = _server(30.0, "Seconds to finish what is running after SIGTERM.", min=0, metavar="SECONDS")
    timeout: float = key(300.0, "The most seconds of a request, its waiting included.", min=0.1)
    read_timeout: float = key(30.0, "The most seconds in which a client has to send a request.", min=0.1)
    max_body: int = key(1_000_000, "The most bytes of a request.", min=1)
    log_texts: bool = key(False, "Log sources and texts as well.")
