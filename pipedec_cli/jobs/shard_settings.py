"""The settings of `pipedec shard run` and `pipedec shard merge`."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

from pipedec_cli.data.shards import Shard
from pipedec_cli.jobs import settings as common
from pipedec_cli.jobs.generate_settings import RunSettings
from pipedec_cli.jobs.settings import Settings, argument, key, option, parse_shard


@dataclass(frozen=True, kw_only=True)
class ShardSettings(RunSettings):
    """The settings of `pipedec shard run`. All other settings of `generate` are keys here."""

    shown = frozenset(
        {"data", "part", "ray", "address", "model", "delay", "dtype", "out"}
        | {"workspace", "config", "set_keys", "as_json", "quiet"}
    )

    part: Shard | None = option(
        None,
        "Generate part K of N of the records. After a stop the same command goes on.",
        parser=parse_shard,
        metavar="K/N",
    )
    ray: bool = option(
        False, "Generate all parts with Ray, on this machine or a cluster that shares the folder."
    )
    address: str | None = option(
        None, "The Ray cluster [default: $RAY_ADDRESS, else one on this machine].", metavar="HOST:PORT|auto"
    )
    workers: int | None = key(
        None,
        "Ray workers, each with a decoder of its own [default: as many as there is room for].",
        min=1,
        max=100_000,
    )
    out: str | None = common.general(
        None, "The folder of the job. Each part is a file in it.", metavar="FOLDER"
    )
    skip_invalid: bool = True


@dataclass(frozen=True, kw_only=True)
class MergeSettings(Settings):
    """The settings of `pipedec shard merge`."""

    folder: Path = argument("The folder of the job.", MISSING)
    out: str | None = common.general(
        None, "The file, or - for stdout [default: predictions.jsonl in the folder].", metavar="FILE|-"
    )
    as_json: bool = common.json_option()
    quiet: bool = common.quiet_option()
