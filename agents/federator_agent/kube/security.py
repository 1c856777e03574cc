"""What the containers of a job may do: by default no more than the profile "restricted" of Kubernetes' pod security standards lets them.

The job and its side container are one user without capabilities, so that one may signal the other and read what it wrote. Where data is brought, the side
container has the site's credentials: it is another user, which may open any file of the pod and no more, and the job sees nothing of it.
"""

from typing import Any

NOBODY = 65532
"""The user of jobs where the site names none: no account of a system has this number."""
APART = "MKNOD"
"""A capability that jobs can do without."""
HOME = "/federator/home"
NAMED = {"HOME": HOME, "USER": "federator", "LOGNAME": "federator"}
"""A user that no image knows has no home and no name of its own, and many programs want both."""
_OF_CARRIER = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL"]
_SECCOMP = {"seccompProfile": {"type": "RuntimeDefault"}}


def of_pod(user: int | None) -> dict[str, Any]:
    """`securityContext` of a pod whose containers run as this user; None: as their images say."""
    if user is None:
        return _SECCOMP
    return _SECCOMP | {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "fsGroupChangePolicy": "OnRootMismatch",
    }


def of_container(user: int | None) -> dict[str, Any]:
    """The same of a container."""
    if user is None:
        return {}
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def of_main_beside_carrier(user: int | None) -> dict[str, Any]:
    """Of a job beside a container that has a secret. Both may be root where images choose, and see each other's processes: of one that may do more than
    itself, a process sees neither the environment, where the secret is, nor the files. So the job lacks something that the other has.
    """
    return {"capabilities": {"drop": [APART]}} if user is None else of_container(user)


def of_carrier(user: int | None) -> dict[str, Any]:
    """Of the side container that brings data."""
    if user is None:
        return {"capabilities": {"add": [APART]}}
    return {
        "runAsUser": 0,
        "runAsGroup": 0,
        "runAsNonRoot": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": _OF_CARRIER},
    }
