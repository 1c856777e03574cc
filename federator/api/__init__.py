"""The HTTP API: one route table, handlers by topic, and what all of them share."""
