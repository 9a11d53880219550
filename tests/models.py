"""The tiny checkpoints, by the name that they had before."""

from tests.checkpoints import TOLD, tiny_checkpoint

__all__ = ["TOLD", "tiny_checkpoint"]
