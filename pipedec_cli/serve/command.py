"""`pipedec serve`: a model behind OpenAI's API."""

import logging
import os
import socket
import sys
from codecs import BOM_UTF8
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.reading import contents
from pipedec_cli.data.schema import MOST_KEYS
from pipedec_cli.data.writing import to_json
from pipedec_cli.jobs.generate_settings import RunSettings
from pipedec_cli.jobs.settings import key, option

_server = partial(option, panel="Server")


@dataclass(frozen=True, kw_only=True)
class ServeSettings(RunSettings):
    """The settings of `pipedec serve`. Settings of `generate` that say how to decode are keys here."""

    shown = frozenset(
        {
            "model",
            "dtype",
            "device",
            "batch_size",
            "host",
            "port",
            "name",
            "api_key_file",
            "insecure",
        }
        | {
            "queue",
            "grace",
            "cache_mb",
            "workspace",
            "config",
            "set_keys",
            "allow_host",
        }
    )
    hidden = frozenset(
        {
            "data",
            "plain",
            "split",
            "limit",
            "skip_invalid",
            "source_field",
            "target_field",
        }
        | {
            "schema",
            "fields",
            "shots",
            "ask",
            "calibrate",
            "confidence",
            "spans",
            "grounded",
        }
        | {"draft", "empty_rows", "stop_on_repeat", "chunk", "time_max", "sub_max"}
        | {"out", "trace", "recipe", "as_json", "quiet"}
    )

    host: str = _server(
        "127.0.0.1",
        "Where to listen; others than this machine need a key.",
        metavar="HOST",
    )
    port: int = _server(8000, "The port; 0 takes a free one.", min=0, max=65_535)
    name: str | None = _server(
        None, "The model's name for clients [default: its file or folder]."
    )
    api_key_file: Path | None = _server(
        None, "A file with a key a line. A client must send one of them."
    )
    allow_host: tuple[str, ...] = _server(
        (), "Another name of this server. May be given several times."
    )
    insecure: bool = _server(False, "Listen to other machines without a key.")
    batch_size: int = _server(16, "Requests decoded at the same time.", min=1, max=4096)
    cache_mb: int = _server(
        512, "Memory for texts that were read, in MB; 0: none.", min=0, max=1_000_000
    )
    queue: int = _server(
        64,
        "Requests that may wait for a place. Others are refused.",
        min=0,
        max=100_000,
    )
    grace: float = _server(
        30.0,
        "Seconds to finish what is running after SIGTERM.",
        min=0,
        metavar="SECONDS",
    )
    timeout: float = key(
        300.0, "The most seconds of a request, its waiting included.", min=0.1
    )
    read_timeout: float = (
        30.0  # the most seconds in which a client has to send a request
    )
    max_keys: int = key(256, "The most keys of a schema.", min=1, max=MOST_KEYS)
    max_choices: int = 10_000  # the most choices of all keys of a schema


EXAMPLES = """
pipedec serve                                     # the workspace's model, at 127.0.0.1:8000
pipedec serve --model ./my-t5 --dtype bfloat16 --port 9000
pipedec serve --host 0.0.0.0 --api-key-file keys  # for other machines; a key a line
"""


def serve(settings: ServeSettings) -> None:
    """Serve a model with OpenAI's API, and a page that shows the grid. New requests join between decoder calls.

    Greedy: no sampling. Log lines go to stderr, as JSON. SIGTERM and Ctrl-C finish what
    is running; a second one ends it.
    """
    try:
        from pipedec_cli.serve.api import Listener
    except ImportError:
        raise UserError(
            "starlette, uvicorn or prometheus_client is not installed",
            todo="pip install '.[serve]'",
        ) from None
    from pipedec_cli.serve.service import Service

    file = settings.api_key_file
    lines = contents(file).removeprefix(BOM_UTF8).splitlines() if file else []
    keys = [key for line in lines if (key := line.strip())]
    if file and not keys:
        raise UserError("has no key", where=str(file), todo="write a key a line")
    host, port = settings.host, settings.port
    try:
        made = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (")[
            0
        ]  # Python adds the address
        what = f"cannot listen on port {port} of {host}: {why}"
        raise UserError(what, todo="give another --port or --host") from None
    if not (keys or settings.insecure or ip_address(made.getsockname()[0]).is_loopback):
        made.close()
        what = f"--host {host} lets other machines in without a key"
        raise UserError(what, todo="give --api-key-file, or --insecure")
    logging.basicConfig(handlers=[_Lines()], format="%(message)s")
    logging.captureWarnings(True)
    log.setLevel(logging.INFO)
    service = Service(settings)
    Listener(service, keys, _log).run([made])
    if (
        service.thread.is_alive() or service.waiting
    ):  # a call or a schema that nobody waits for
        os._exit(0)


class _Lines(logging.Handler):
    """What is logged here or by libraries, such as a request that is no HTTP, becomes lines like all others."""

    def emit(self, record: logging.LogRecord) -> None:
        _log(
            "warning" if record.levelno >= logging.WARNING else "message",
            text=self.format(record),
        )


def _log(event: str, **fields: Any) -> None:
    line = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "event": event,
        **fields,
    }
    sys.stderr.write(to_json(line) + "\n")
    sys.stderr.flush()
