"""The settings of `pipedec serve`."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipedec_cli.jobs.generate_settings import RunSettings
from pipedec_cli.jobs.settings import key, option
from pipedec_cli.objects.schema import MOST_KEYS

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
