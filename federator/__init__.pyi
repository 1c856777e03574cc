from federator.client import AsyncClient as AsyncClient
from federator.client import Client as Client
from federator.client import JobFilter as JobFilter

__version__: str
