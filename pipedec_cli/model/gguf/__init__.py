"""GGUF files of decoder-only models, in and out: the format of llama.cpp."""
