"""Runs work as jobs of a Slurm cluster, through its own commands: no library, no daemon to set up, and every version of Slurm has them."""
