"""The kinds of rules that platform teams write, each compiled into the closed vocabulary of decisions."""
