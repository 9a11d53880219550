"""A loaded decoder from texts to results: plain, exact, calibrated. The only importer of the engine above the model."""
