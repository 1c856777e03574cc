"""Runs work as bare pods of a Kubernetes cluster; the only door to `kubernetes_asyncio`."""
