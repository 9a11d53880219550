"""The decoding engine: cached decoder calls by compiled kernels (`native/`) or by torch (`torch/`)."""
