"""The operator as a process: the cluster, the lease, and an orderly end."""

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import Coroutine
from pathlib import Path

from federator.kernel import logs, systemd
from federator.kernel.tasks import cancel_and_wait
from federator.kube.api import Api
from federator.operator.election import Election
from federator.operator.loop import Operator
from federator.operator.settings import OperatorFile

log = logging.getLogger("federator.operator")


async def serve(file: OperatorFile) -> None:
    """Work whenever this is the one that holds the lease, until SIGTERM or SIGINT."""
    logs.configure(as_json=file.log_format == "json")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    api = Api(file.kubeconfig, file.context)
    me = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    election = Election(api, file.lease_namespace, me)
    life = systemd.show_life(Path(file.alive_file), lambda: election.stands) if file.alive_file else None
    showing = asyncio.create_task(life) if life else None
    try:
        while not stop.is_set():
            await _first(stop.wait(), election.won())
            if not stop.is_set():
                log.info("%s works: it submits for %s", me, ", ".join(sorted(file.namespaces)))
                operator = Operator(file, api)
                try:
                    await _first(stop.wait(), election.lost(), operator.run())
                finally:
                    await operator.close()
                log.info("%s does not work any more", me)
    finally:
        if showing:
            showing.cancel()
        await election.leave()
        await api.close()


async def _first(*works: Coroutine[object, object, object]) -> None:
    """Until the first of them ends, the others are then ended. Raises what it raises."""
    tasks = [asyncio.create_task(each) for each in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancel_and_wait(*tasks)
