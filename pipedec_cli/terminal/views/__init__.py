"""How things look: tables, bars and the live grid. A view draws what it is given and computes nothing else."""
