"""The web server: uvicorn's, with an end that leaves time for what runs, and a bound on clients that keep it waiting."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import current_thread, main_thread
from time import monotonic
from typing import Any

from uvicorn import Config, Server

from pipedec_cli.jobs.serve import Service
from pipedec_cli.view.api.app import Api


class Listener(Server):  # type: ignore[misc]
    """Serves a service on sockets. `log` takes an event and the fields of a line, `keys` are those of clients."""

    def __init__(self, service: Service, keys: Sequence[bytes], log: Callable[..., None]) -> None:
        settings = self.settings = service.settings
        most = 2 * (settings.batch_size + settings.queue) + 64  # connections, so that idle ones take no place
        how: Any = {"lifespan": "off", "ws": "none", "log_config": None, "limit_concurrency": most}
        grace = int(settings.grace) + 2
        super().__init__(Config(Api(service, keys, log), timeout_graceful_shutdown=grace, **how))
        self.service, self.log = service, log
        self._ending, self._idle = list[Any](), dict[Any, float]()

    async def startup(self, sockets: Any = None) -> None:
        """Listen, and say where."""
        await super().startup(sockets)
        host, port = sockets[0].getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self.log("ready", model=self.service.name, url=url)

    async def on_tick(self, counter: int) -> bool:
        """Some times a second, cut connections whose client has not sent a request, or read an answer, for too long."""
        now, idle = monotonic(), dict[Any, float]()
        for one in self.server_state.connections:
            if one.cycle is None or one.cycle.response_complete or one.transport.is_closing():
                since = idle[one, one.cycle] = self._idle.get((one, one.cycle), now)
                if now - since > self.settings.read_timeout:
                    one.transport.abort()
        self._idle = idle
        return bool(await super().on_tick(counter))

    async def shutdown(self, sockets: Any = None) -> None:
        """Wait for what runs, as long as the grace allows, and for the engine."""
        await super().shutdown(sockets)
        await asyncio.to_thread(self.service.close, at_once=True)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end the server; a second one at once."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT) if current_thread() is main_thread() else ():
            loop.add_signal_handler(name, lambda: self._ending.append(loop.create_task(self._end())))
        yield

    async def _end(self) -> None:
        """Refuse newcomers. What runs has the grace to finish, unless a second signal has come."""
        self.force_exit, self.should_exit = self.service.closing, True
        self.service.close()
        await asyncio.sleep(0 if self.force_exit else self.settings.grace)
        await asyncio.to_thread(self.service.close, at_once=True)
