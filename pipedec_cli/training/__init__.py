"""Training: hyperparameters, the order of examples, batches on the grid, the loss, and the loop."""
