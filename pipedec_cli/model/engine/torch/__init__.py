"""Decoder calls by torch: the layers of each family, and the stepper that runs them with a cache."""
