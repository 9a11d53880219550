"""Encoder and decoder calls in C++, compiled when they are first used."""
