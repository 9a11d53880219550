"""`pipedec serve`: a model behind OpenAI's API."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from contextlib import nullcontext
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

    Greedy: no sampling. Log lines go to stderr, as JSON. SIGTERM and Ctrl-C finish what is running.
    """
    try:
        from uvicorn import Config, Server

        from pipedec_cli.view.api.app import Api
    except ImportError:
        raise UserError("starlette or uvicorn is not installed", todo="pip install '.[serve]'") from None
    from pipedec_cli.jobs.serve import Service

    file, grace = settings.api_key_file, settings.grace
    keys = [key for line in contents(file).splitlines() if (key := line.strip())] if file else []
    if file and not keys:
        raise UserError("has no key", where=str(file), todo="write a key a line")
    listening = _listen(settings.host, settings.port, is_open=bool(keys) or settings.insecure)
    service = Service(settings, Notify(_log_message))
    most = 2 * (settings.batch_size + settings.queue) + 64  # connections, so that idle ones take no place
    how: Any = {"lifespan": "off", "ws": "none", "log_config": None, "limit_concurrency": most}
    server = Server(Config(Api(service, keys, _log), timeout_graceful_shutdown=int(grace) + 2, **how))
    server.capture_signals = nullcontext

    async def end() -> None:
        """Refuse newcomers. What runs has the grace to finish."""
        service.close()
        server.should_exit = True
        await asyncio.sleep(grace)
        await asyncio.to_thread(service.close, at_once=True)

    async def main() -> None:
        ending, loop = list[Any](), asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, lambda: ending.append(loop.create_task(end())))
        host, port = listening.getsockname()[:2]
        _log("ready", model=service.name, url=f"http://{f'[{host}]' if ':' in host else host}:{port}")
        await server.serve([listening])

    asyncio.run(main())
    service.close(at_once=True)


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


def _log(event: str, **fields: Any) -> None:
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **fields}
    sys.stderr.write(to_json(line) + "\n")
    sys.stderr.flush()


def _log_message(event: Any) -> None:
    if isinstance(event, Message):
        _log("warning" if event.warning else "message", text=event.text)
