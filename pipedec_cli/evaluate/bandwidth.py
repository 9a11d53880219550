"""How fast this machine's threads read memory: the limit of a decoder step with few rows.

A step reads every weight once, whatever the number of rows. Machines in a cloud are shared, so the speed changes from
minute to minute: it is read beside each measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pipedec_cli.evaluate.timing import Clock

if TYPE_CHECKING:
    import torch

#: Bytes that are read at once: several times the largest cache of a processor.
PROBE_BYTES: Final = 1 << 30
#: Passes of which the fastest counts: others on the machine can only slow one down.
PASSES: Final = 3
_WORD: Final = 4


class MemoryProbe:
    """A buffer, and how fast all threads together read it from front to back.

    Attributes:
        size: its bytes.
        reader: what reads, for a note.
        readings: what was measured so far, bytes a second.
    """

    def __init__(self, clock: Clock, size: int = PROBE_BYTES, device: str = "cpu") -> None:
        """Fill the buffer.

        Args:
            clock: reads the time once the device has finished.
            size: bytes.
            device: ``cpu``, ``cuda`` or ``cuda:N``.
        """
        import torch

        self.size = size
        self.readings: list[float] = []
        self._clock = clock
        buffer = torch.ones(size // _WORD, dtype=torch.int32, device=device)
        self._read, self.reader = _reader(buffer)

    def measure(self) -> float:
        """Bytes a second, the fastest of a few passes."""
        seconds = []
        for _ in range(PASSES):
            began = self._clock()
            self._read()
            seconds.append(self._clock() - began)
        self.readings.append(self.size / min(seconds))
        return self.readings[-1]


def _reader(buffer: torch.Tensor) -> tuple[Callable[[], object], str]:
    """What reads a buffer with all threads, and its name."""
    import torch

    from pipedec_cli.model.native.build import BuildError
    from pipedec_cli.model.native.library import library

    if buffer.device.type == "cpu":
        with suppress(BuildError):
            kernels = library()
            size = buffer.numel() * _WORD
            return (
                lambda: kernels.read(buffer.data_ptr(), size, torch.get_num_threads()),
                "compiled kernels",
            )
    floats = buffer.view(torch.float32)
    return lambda: floats.sum().item(), "torch.sum, which may be slower than the memory"


def step_bytes(config: Any, *, item: int, source: int, cached: int) -> int:
    """Bytes that a decoder step of a T5 must read: every matrix of the decoder once, and one example's keys and values.

    Args:
        config: the model's T5Config.
        item: bytes of a weight and of what is cached.
        source: tokens of the source.
        cached: tokens in the grid.
    """
    width, inner = config.d_model, config.num_heads * config.d_kv
    attention = 4 * width * inner + 2 * width * inner  # q, k, v, o of the grid; q, o of the source
    feed = (3 if config.is_gated_act else 2) * width * config.d_ff
    cache = 2 * inner * (source + cached)
    numbers: int = config.num_decoder_layers * (attention + feed + cache) + config.vocab_size * width
    return item * numbers
