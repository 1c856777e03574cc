"""Agent connections: who is connected, what each agent is told, and what it says."""

from federator.hub.outside import DirectPipe, Pipe
from federator.hub.session import Session
from federator.hub.sessions import Hub

__all__ = ["DirectPipe", "Hub", "Pipe", "Session"]
