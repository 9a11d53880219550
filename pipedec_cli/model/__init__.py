"""Models: families of them, checkpoints, the decoding engine, batches and training. The only importer of transformers."""
