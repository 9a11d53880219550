"""Encoder and decoder step in C++, compiled when they are first used; without a compiler torch's operators serve."""
