"""As whom a namespace submits, and what of its objects may be submitted so."""

from pathlib import Path
from typing import Any

from federator.client import AsyncClient
from federator.kernel.errors import Forbidden, Invalid, Unavailable
from federator.operator.objects import (
    LEFT_OUT,
    NAME_LABEL,
    NAMESPACE_LABEL,
    RESERVED,
    UID_LABEL,
    FederatedJob,
)
from federator.operator.settings import OperatorFile, Tenant

PATIENCE_S = 5.0
"""For how long a call is repeated; then the object is put back, and its turn comes again."""
LISTING_PAUSE = 4.0
"""The pause between two lists of jobs, or of sites, is so many times as long as the list took, at least: of many it takes seconds of the dispatcher's time."""
REFUSED_AGAIN_S = 60.0
"""A refusal may be mended at the dispatcher: a right, a queue."""
MOST_TOKEN_BYTES = 64 * 1024


def client_of(file: OperatorFile, tenant: Tenant) -> AsyncClient:
    """The dispatcher as that person sees it."""

    async def token() -> str:
        return read_token(tenant.token_file)

    return AsyncClient(file.dispatcher, token, patience_s=PATIENCE_S, ca=file.ca, proxy=file.proxy)


def read_token(path: Path | str) -> str:
    """What the file holds now. Raises `Unavailable`: a Secret may come later than its pod."""
    try:
        with Path(path).open() as file:
            found = file.read(MOST_TOKEN_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"the token in {path} cannot be read: {error}", retry_after_s=5.0) from None
    if not found:
        raise Unavailable(f"the token file {path} is empty", retry_after_s=5.0)
    return found


def document_of(job: FederatedJob, tenant: Tenant) -> dict[str, Any]:
    """The job file that is submitted. Raises `Invalid` or `Forbidden`."""
    meta = job.metadata
    spec = {name: value for name, value in job.spec.items() if value is not None}
    for name in LEFT_OUT:
        if name in spec:
            remedy = "submit a series with federator submit" if name != "client_id" else "leave it out"
            raise Invalid("is not for FederatedJob", field=f"$.{name}", remedy=remedy)
    labels = spec.get("labels", {})
    if not isinstance(labels, dict):
        raise Invalid("is not a mapping", field="$.labels", remedy="write 'key: value' pairs")
    for name in labels:
        if name.startswith(RESERVED):
            raise Invalid("is the operator's own", field=f"$.labels.{name}", remedy="choose another prefix")
    if tenant.queue is not None:
        check_queue(spec.setdefault("queue", tenant.queue), meta.namespace, tenant)
    spec.setdefault("name", meta.name[:63].rstrip("-."))
    own = {NAMESPACE_LABEL: meta.namespace, NAME_LABEL: meta.name[:200], UID_LABEL: meta.uid}
    return spec | {"labels": labels | own, "client_id": meta.uid}


def check_queue(queue: object, namespace: str, tenant: Tenant) -> None:
    """Refuse a queue that is not the namespace's own, nor below it: at submission, and at each change. Raises `Forbidden`."""
    own = tenant.queue
    if own is not None and queue != own and not str(queue).startswith(f"{own}/"):
        remedy = f"leave it out, or name {own} or a queue below it"
        message = f"jobs of namespace {namespace} may not go to {str(queue)[:80]}"
        raise Forbidden(message, field="$.queue", remedy=remedy)
