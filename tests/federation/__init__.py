"""The federation test: every runtime and store as it is in earnest, at once, with faults, and a judge who believes what the jobs have written down."""
