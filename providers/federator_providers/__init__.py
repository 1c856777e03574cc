"""The clouds that rent capacity, each behind the same small protocol."""
