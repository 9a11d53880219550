"""Comparing decoders: entries, timing, peers, gains and advice."""
