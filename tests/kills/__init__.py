"""Seeded kills of real processes, and a judge who believes only what the jobs themselves have written down."""
