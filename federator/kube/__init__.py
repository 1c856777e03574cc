"""Kubernetes clusters as the agent, the operator and the provider `kubernetes` speak to them: requests to an API server, and the fields of its objects that are read."""
