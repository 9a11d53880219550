"""Models: families of them, checkpoints, the decoding engine and training. The only importer of transformers."""
