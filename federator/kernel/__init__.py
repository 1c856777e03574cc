"""What every other package stands on: clock, ids, errors, quantities, supervision. Standard library only."""
