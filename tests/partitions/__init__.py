"""Partitions of real processes: agents whose way to the dispatcher a proxy of the test's own makes slow, one-way or dead."""
