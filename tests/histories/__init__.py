"""Recorded histories of what clients are told while things fail, and a judge of them that shares no code with the product."""
