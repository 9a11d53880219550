"""What the commands do, between their options and what they show."""
