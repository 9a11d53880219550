"""`pipedec serve`: a model behind OpenAI's API."""

import logging
import os
import socket
import sys
from codecs import BOM_UTF8
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from pipedec_cli.data.errors import UserError, log
from pipedec_cli.data.reading import contents
from pipedec_cli.data.writing import to_json
from pipedec_cli.serve.settings import ServeSettings

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
    keys = _read_keys(file) if file else []
    listening = _listen(settings.host, settings.port)
    address = listening.getsockname()[0]
    if not (keys or settings.insecure or ip_address(address).is_loopback):
        listening.close()
        what = f"--host {settings.host} lets other machines in without a key"
        raise UserError(what, todo="give --api-key-file, or --insecure")
    logging.basicConfig(handlers=[_Lines()], format="%(message)s")
    logging.captureWarnings(True)
    log.setLevel(logging.INFO)
    service = Service(settings)
    Listener(service, keys, _log).run([listening])
    _log("ended", model=service.name)
    if service.thread.is_alive() or service.waiting:
        # A call or a schema that nobody waits for.
        os._exit(0)


#: Its entry in the table of the commands.
COMMAND: Final = (ServeSettings, serve, EXAMPLES, ("config", "set_keys"))


def _read_keys(file: Path) -> list[bytes]:
    """The keys of clients, one a line."""
    lines = contents(file).removeprefix(BOM_UTF8).splitlines()
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        raise UserError("has no key", where=str(file), todo="write a key a line")
    return keys


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens to clients."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        # Python adds the address in brackets.
        why, *_ = (error.strerror or str(error)).partition(" (")
        what = f"cannot listen on port {port} of {host}: {why}"
        raise UserError(what, todo="give another --port or --host") from None


class _Lines(logging.Handler):
    """What is logged here or by libraries, such as a request that is no HTTP, becomes lines like all others."""

    def emit(self, record: logging.LogRecord) -> None:
        _log(
            "warning" if record.levelno >= logging.WARNING else "message",
            text=self.format(record),
        )


def _log(event: str, **fields: Any) -> None:
    """Write a line of the log to stderr: JSON with the time, the event and its fields."""
    line = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "event": event,
        **fields,
    }
    sys.stderr.write(to_json(line) + "\n")
    sys.stderr.flush()
