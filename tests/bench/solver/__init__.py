"""`python -m tests.bench.solver`: one turn of the optimizer on synthetic federations, beside simpler rules, against a proven bound."""
