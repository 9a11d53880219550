"""`pipedec serve`: a model behind OpenAI's API."""

from __future__ import annotations

import logging
import socket
import sys
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import contents
from pipedec_cli.data.writing import to_json
from pipedec_cli.jobs.events import Message, Notify
from pipedec_cli.jobs.serve_settings import ServeSettings

EXAMPLES = """
pipedec serve                                     # the workspace's model, at 127.0.0.1:8000
pipedec serve --model ./my-t5 --dtype int8 --port 9000
pipedec serve --host 0.0.0.0 --api-key-file keys  # for other machines; a key a line
"""


def serve(settings: ServeSettings) -> None:
    """Serve a model with OpenAI's API, and a page that shows the grid. New requests join between decoder calls.

    Greedy: no sampling. Log lines go to stderr, as JSON. SIGTERM and Ctrl-C finish what is running; a second one ends it.
    """
    try:
        from pipedec_cli.view.api.listener import Listener
    except ImportError:
        raise UserError("starlette or uvicorn is not installed", todo="pip install '.[serve]'") from None
    from pipedec_cli.jobs.serve import Service

    file = settings.api_key_file
    keys = [key for line in contents(file).splitlines() if (key := line.strip())] if file else []
    if file and not keys:
        raise UserError("has no key", where=str(file), todo="write a key a line")
    listening = _listen(settings.host, settings.port, is_open=bool(keys) or settings.insecure)
    logging.basicConfig(handlers=[_Lines()], format="%(message)s")
    logging.captureWarnings(True)
    Listener(Service(settings, Notify(_log_message)), keys, _log).run([listening])


def _listen(host: str, port: int, *, is_open: bool) -> socket.socket:
    """A socket. A `UserError` if it cannot be had, or lets other machines in and is not meant to be `is_open`."""
    try:
        made = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        what = f"cannot listen on port {port} of {host}: {error.strerror}"
        raise UserError(what, todo="give another --port or --host") from None
    if not (is_open or ip_address(made.getsockname()[0]).is_loopback):
        made.close()
        what = f"--host {host} lets other machines in without a key"
        raise UserError(what, todo="give --api-key-file, or --insecure")
    return made


class _Lines(logging.Handler):
    """What libraries log or warn of, such as a request that is no HTTP, becomes lines like all others."""

    def emit(self, record: logging.LogRecord) -> None:
        _log("warning", text=self.format(record))


def _log(event: str, **fields: Any) -> None:
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **fields}
    sys.stderr.write(to_json(line) + "\n")
    sys.stderr.flush()


def _log_message(event: Any) -> None:
    if isinstance(event, Message):
        _log("warning" if event.warning else "message", text=event.text)
