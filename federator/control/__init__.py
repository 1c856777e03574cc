"""The loops of the dispatcher: intake, inventory, progress, turn, committer, executor, sweeper, leadership."""
