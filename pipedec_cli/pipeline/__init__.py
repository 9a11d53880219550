"""The method itself: grid, visibility and position, and the decoding loop. Knows of integers and tensors only."""
