"""The records: immutable values that every part of Federator agrees on. No I/O, no clock, no randomness."""
