"""JSON objects: schemas, what they ask of a model, which answers are known, rows, and values of finished grids."""
