"""What every other package stands on: clock, ids, errors, quantities, threads, supervision. Standard library only."""
