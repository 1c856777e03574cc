"""Which runtime a site file asks for. Those of clusters are imported where they are: an agent of a small host has no memory for them."""

from collections.abc import Mapping
from typing import NamedTuple

from federator.wire.needs import DATA, IMAGES, OUTPUTS, secret
from federator_agent.config import AgentSettings
from federator_agent.local import traces
from federator_agent.local.confinement import Confinement, confinement, shared
from federator_agent.local.ranks import SELF_FENCING
from federator_agent.local.runtime import LocalRuntime
from federator_agent.runtime import Runtime, Surroundings


class RuntimeKind(NamedTuple):
    """What is to be known of a runtime before there is one."""

    name: str
    boot_id: str
    """Another one proves that all work is gone. That of work on other machines never changes."""
    self_fencing: bool = False
    """Whether something outside of the agent's process ends work that is cut off for too long (`stop_within`)."""
    sample_s: float = 30.0
    """Real seconds between two looks at what its work uses."""
    outlives: bool = True
    """Whether work goes on when this host does not."""


def kind(settings: AgentSettings) -> RuntimeKind:
    """Which one it is."""
    if settings.kube is not None:
        return RuntimeKind("kube", boot_id="kube", sample_s=60.0)
    if settings.slurm is not None:
        return RuntimeKind("slurm", boot_id="slurm")
    if settings.multikueue is not None:
        return RuntimeKind("multikueue", boot_id="multikueue")
    return RuntimeKind("local", traces.boot_id(), self_fencing=SELF_FENCING, sample_s=10.0, outlives=False)


def where_work_is(settings: AgentSettings) -> Mapping[str, object]:
    """By the key of the site file, what says where the agent's work is and what it knows of it. An agent that looked elsewhere would find none of it, and say that it is lost."""
    runtime = kind(settings).name
    key = "pools" if runtime == "local" else runtime
    found: dict[str, object] = {"site": settings.site.name, "state_dir": settings.state_dir, key: runtime}
    if kube := settings.kube:
        found |= {f"kube.{key}": getattr(kube, key) for key in ("namespace", "kubeconfig", "context")}
    if slurm := settings.slurm:
        found |= {f"slurm.{key}": getattr(slurm, key) for key in ("conf", "shared_dir")}
    if kueue := settings.multikueue:
        found |= {f"multikueue.{key}": getattr(kueue, key) for key in ("cluster", "kubeconfig", "context")}
    return found


def abilities(settings: AgentSettings) -> tuple[str, ...]:
    """What jobs may need and find here, by the words of `federator.wire.needs`."""
    images = (IMAGES,) if settings.kube is not None or settings.images is not None else ()
    data = (DATA,) if settings.kube is None or settings.kube.data is not None else ()
    outputs = (OUTPUTS,) if settings.multikueue is None else ()
    return (*images, *data, *outputs, *sorted(secret(name) for name in settings.secrets))


def keeping_apart(settings: AgentSettings) -> Confinement:
    """What stands between the jobs of this host. A cluster sees to its own. Raises `Invalid` when what the file asks for does not work."""
    if kind(settings).outlives:
        return shared()
    files = [secret.file for secret in settings.secrets.values() if secret.file is not None]
    files += [settings.host_key] if settings.host_key else []
    return confinement(settings.isolation, settings.state_dir, files)


def runtime(settings: AgentSettings, around: Surroundings) -> Runtime:
    """It, made."""
    if settings.slurm is not None:
        from federator_agent.slurm.runtime import SlurmRuntime  # noqa: PLC0415

        return SlurmRuntime(settings.slurm, around)
    if settings.kube is not None:
        from federator_agent.kube.runtime import KubeRuntime  # noqa: PLC0415

        return KubeRuntime(settings.kube, around)
    if settings.multikueue is not None:
        from federator_agent.multikueue.runtime import MultiKueueRuntime  # noqa: PLC0415

        return MultiKueueRuntime(settings.multikueue, around)
    return LocalRuntime(around)
