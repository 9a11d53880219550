"""Text generation from a context, pipelined: several phrases or sentences grow at once."""
