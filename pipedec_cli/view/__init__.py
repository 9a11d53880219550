"""What is shown on a terminal, in Markdown and in HTML. A view computes nothing."""
