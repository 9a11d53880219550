"""Results laid out as sheets: titles, columns, rows and notes."""
