"""Results as a page to look at in a browser."""
