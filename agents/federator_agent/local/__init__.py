"""Runs the ranks of jobs as processes of this host, each under a small shell shim that outlives the agent."""
