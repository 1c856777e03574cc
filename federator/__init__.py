"""Federator: one submit endpoint over many clusters, and a dispatcher that assigns whole jobs to sites."""

__version__ = "0.1.0"
