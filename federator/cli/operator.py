"""`operator`: what submits a Kubernetes cluster's `FederatedJob` objects and mirrors their jobs."""

import asyncio
from pathlib import Path


def operator(*, config: Path) -> None:
    """Submit the FederatedJob objects of a Kubernetes cluster, and say in their status how their jobs are, until it is told to stop (SIGTERM, Ctrl-C).

    Several may run: one of them works.

    Parameters
    ----------
    config:
        YAML file: the dispatcher, the cluster, and as whom each namespace submits.
    """
    from federator.operator.process import serve
    from federator.operator.settings import load

    asyncio.run(serve(load(config)))
