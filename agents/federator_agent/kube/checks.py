"""What `federator-agent check` says of a Kubernetes site, by its file alone: how far its pods are from what the strictest profile asks for."""

import contextlib
from pathlib import Path

from federator_agent.kube.pod_template import loosened
from federator_agent.kube.settings import KubeData, KubeSettings

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def own_namespace() -> str:
    """Where the agent's own pod is; empty: it is no pod."""
    with contextlib.suppress(OSError):
        return _OWN_NAMESPACE.read_text().strip()
    return ""


def notes(settings: KubeSettings, own: str) -> list[str]:
    """Lines that begin with `ok`, or with `WARN` and what to do. `own`: the agent's namespace."""
    lines = [_users(settings), f"ok    pods of jobs fit the pod security profile '{profile(settings)}'"]
    for name, template in settings.named_templates().items():
        if looser := loosened(template):
            lines.append(
                f"WARN  kube.{name} lays over {', '.join(looser)}: see that the namespace's profile takes that"
            )
    for home in settings.homes():
        if home == own:
            lines.append(
                f"WARN  jobs share namespace {own} with the agent; give them one of their own with kube.namespace"
            )
        else:
            lines.append(f"ok    jobs run in namespace {home}")
    accounts = sorted({settings.service_account or "default", *settings.service_accounts.values()})
    lines.append(f"ok    service accounts of jobs, without a token: {', '.join(accounts)}")
    return lines


def profile(settings: KubeSettings) -> str:
    """The strictest one that all its pods fit: what `pod-security.kubernetes.io/enforce` of the namespace may say."""
    if settings.data is not None:
        return "privileged" if _of_host(settings.data) else "baseline"
    return "baseline" if settings.run_as is None else "restricted"


def _of_host(data: KubeData) -> bool:
    volumes = (*data.volumes, *((data.cache,) if data.cache is not None else ()))
    return any(volume.host_path for volume in volumes)


def _users(settings: KubeSettings) -> str:
    if settings.run_as is None:
        return "WARN  run_as is image: jobs run as the user that their image names, which may be root; leave run_as out unless images need it"
    return f"ok    jobs run as user {settings.run_as}, without privileges"
