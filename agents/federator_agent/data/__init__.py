"""Moves data: the inputs of jobs to the site before they start, their checkpoints to where the next site finds them."""
