"""Cached decoding steps: the engine, and what takes the steps where no compiled kernels do."""
