"""Training: the data on the grid, the loss, and the loop."""
