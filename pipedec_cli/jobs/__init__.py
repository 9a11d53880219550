"""What each command does: settings in, events on the way, a typed result. A job prints nothing."""
