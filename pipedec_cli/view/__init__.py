"""What a terminal shows: tables, the live grid, progress; and the model card. A view computes nothing."""
