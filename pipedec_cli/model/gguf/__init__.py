"""Decoder-only models in GGUF files, the format of llama.cpp."""
