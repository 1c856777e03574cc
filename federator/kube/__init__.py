"""Kubernetes clusters as the agent, the operator and the provider `kubernetes` speak to them: requests to an API server."""
