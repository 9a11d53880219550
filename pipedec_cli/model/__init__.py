"""Models: families of them, checkpoints, and the decoding engine."""
