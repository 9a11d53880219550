"""Records, readers and writers, and segmentation. Knows of nothing else in this package."""
