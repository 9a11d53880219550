"""What is said when a training stops before its end: by Ctrl-C, with another process, or at a file that cannot be written."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pipedec_cli.data.errors import UserError, log, naming
from pipedec_cli.data.trained import best_checkpoint
from pipedec_cli.jobs.command_lines import quoted
from pipedec_cli.training.hyperparameters import process_count

#: What the system says of a file that cannot be written.
_OF_WRITING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
#: How gloo and NCCL say that another process, with which this one adds up gradients,
#: has ended. Gloo raises plain RuntimeErrors, and NCCL one class for all that can fail:
#: nothing but their words tells it.
_PEER_GONE: Final = (
    "closed by peer",
    "reset by peer",
    "remote process exited",
    "remote worker",
)


@contextmanager
def explain_stop(target: Path) -> Iterator[None]:
    """Say how to go on if a training, which writes to the folder `target`, is stopped by Ctrl-C or with another process.

    An error of a library that could not write a file becomes an OSError that names the
    folder.
    """
    try:
        with naming(target):
            yield
    except KeyboardInterrupt:
        _say_stopped(target, "")
        raise
    except UserError:
        raise
    except Exception as error:
        if process_count() > 1 and any(words in str(error) for words in _PEER_GONE):
            _say_stopped(target, ", since another process has ended")
            raise SystemExit(1) from error  # the other process says why
        if isinstance(error, OSError) and error.errno is not None:
            raise
        unwritten = _writing_error(error, target)
        if unwritten is None:
            raise
        raise unwritten from error


def _say_stopped(target: Path, reason: str) -> None:
    """Say what is kept of a training that was stopped, and how to go on; `reason` is put behind the word "stopped"."""
    kept = " before there was a first checkpoint; nothing is kept"
    if any(target.glob("checkpoint-*")):
        kept = "; the same command with --resume goes on from the last checkpoint"
        best = best_checkpoint(target)
        if best and (best / "model.safetensors").exists():  # not adapters alone
            kept += f", and `generate --model {quoted(str(best))}` takes the best weights so far"
    log.info(f"stopped{reason}{kept}")


def _writing_error(error: Exception, target: Path) -> OSError | None:
    """The system's error, naming the folder `target`, for which a library could not write a file; None for another error."""
    number = _system_error(error)
    if number is None and shutil.disk_usage(target).free < 1 << 20:
        number = errno.ENOSPC
    if number is not None:
        return OSError(number, os.strerror(number), str(target))
    # So torch.save says, in a plain RuntimeError, that a file is not as long as it
    # should be. It does not say which error it was.
    if "unexpected pos" in str(error):
        unknown = (
            "a file cannot be written: a quota, a limit of its size, or a broken disk"
        )
        return OSError(None, unknown, str(target))
    return None


def _system_error(error: Exception) -> int | None:
    """The number of the system's error for which a library could not write a file, if it is known."""
    # safetensors and tokenizers are in Rust, whose errors have no number but in words.
    coded = re.search(r"\(os error (\d+)\)", str(error))
    if coded:
        return int(coded[1])
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _OF_WRITING:
            return cause.errno
        cause = cause.__cause__ or cause.__context__
    return None
