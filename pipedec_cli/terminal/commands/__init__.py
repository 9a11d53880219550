"""One module a command; each parses, builds and runs, and holds no algorithm."""
