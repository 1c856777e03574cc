"""A federation that works for long, and whether anything grows that should not."""
