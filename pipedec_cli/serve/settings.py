"""The settings of `pipedec serve`."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta

from pipedec_cli.jobs import settings as common
from pipedec_cli.jobs.generate_settings import GenerateSettings
from pipedec_cli.jobs.settings import (
    LARGEST,
    Device,
    Size,
    SourceTokens,
    StoredDtype,
    Threads,
    WorkflowSettings,
    key,
    option,
)
from pipedec_cli.objects.schema import MOST_KEYS

#: Seconds to finish what is running after SIGTERM.
GRACE: Final = 30.0
#: The most seconds in which a client has to send a request.
READ_TIMEOUT: Final = 30.0
#: The most choices of all keys of a schema.
MAX_CHOICES: Final = 10_000
#: The most questions of a request for decisions.
MAX_QUESTIONS: Final = 400

_server = partial(option, panel="Server")


@dataclass(frozen=True, kw_only=True)
class ServeSettings(WorkflowSettings):
    """The settings of `pipedec serve`."""

    model: str | None = option(
        None, "Folder, hub name, GGUF file or sequential [default: pipelined]."
    )
    batch_size: Annotated[int, Meta(ge=1, le=4096)] = option(
        16, "Requests decoded at the same time."
    )
    dtype: StoredDtype | None = option(
        None,
        "Or bfloat16, float16, int8, int4 [default: float32; GGUF's own].",
        metavar="TYPE",
    )
    device: Device = common.device_option()
    delay: Size | Literal["wait"] | None = key(
        None, "Δt: a row starts every N time-steps [default: trained, or 2]."
    )
    exact: str | None = key(
        None, "Write this sequential model's text in fewer calls.", metavar="MODEL"
    )
    max_tokens: Size | None = key(
        None, "The most tokens [default: 512 for wait and sequential]."
    )
    prompt_template: str | None = key(
        None,
        "The prompt, with {source} (last, for an encoder) [default: as trained].",
        read=common.read_template,
    )
    chat: bool | None = key(
        None, "Put the prompt into the model's chat template [default: as trained]."
    )
    max_source_tokens: SourceTokens | None = key(
        None, "Cut longer sources [default: as trained]."
    )
    threads: Threads | None = common.threads_key()
    host: str = _server(
        "127.0.0.1",
        "Where to listen; others than this machine need a key.",
        metavar="HOST",
    )
    port: Annotated[int, Meta(ge=0, le=65_535)] = _server(
        8000, "The port; 0 takes a free one."
    )
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
    cache_mb: Annotated[int, Meta(ge=0, le=1_000_000)] = _server(
        512, "Memory for texts that were read, in MB; 0: none."
    )
    queue: Annotated[int, Meta(ge=0, le=100_000)] = _server(
        64, "Requests that may wait for a place. Others are refused."
    )
    timeout: Annotated[float, Meta(ge=0.1, le=LARGEST)] = key(
        300.0, "The most seconds of a request, its waiting included."
    )
    max_keys: Annotated[int, Meta(ge=1, le=MOST_KEYS)] = key(
        256, "The most keys of a schema."
    )

    @property
    def decoding(self) -> GenerateSettings:
        """The settings of `generate` that read and decode a text as this server does."""
        return GenerateSettings(
            text=("",),
            model=self.model,
            workspace=self.workspace,
            delay=self.delay,
            exact=self.exact,
            max_tokens=self.max_tokens,
            prompt_template=self.prompt_template,
            chat=self.chat,
            max_source_tokens=self.max_source_tokens,
            dtype=self.dtype,
            device=self.device,
            threads=self.threads,
        )
