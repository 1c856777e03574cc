"""What Kubernetes' pod security standards say of a pod's manifest: the profiles "baseline" and "restricted", as they are published for Linux.

Written from the published table, and not from the code that it judges. Each finding names the field.
"""

from collections.abc import Iterator
from typing import Any

BASELINE_CAPABILITIES = {
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID",
    "SETPCAP", "SETUID", "SYS_CHROOT",
}  # fmt: skip
RESTRICTED_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
SAFE_SYSCTLS = {
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
}  # fmt: skip


def baseline(spec: dict[str, Any]) -> list[str]:
    """How a pod's `spec` breaks the profile "baseline"; empty: it does not."""
    return [
        *_baseline_of_pod(spec),
        *(f"{name}: {why}" for name, one in _containers(spec) for why in _baseline_of(one)),
    ]


def restricted(spec: dict[str, Any]) -> list[str]:
    """The same for "restricted", which holds all of "baseline"."""
    pod = spec.get("securityContext", {})
    found = baseline(spec)
    for volume in spec.get("volumes", ()):
        found += [
            f"volume {volume['name']}: {kind}" for kind in volume if kind not in {*RESTRICTED_VOLUMES, "name"}
        ]
    for name, one in _containers(spec):
        found += [f"{name}: {why}" for why in _restricted_of(one.get("securityContext", {}), pod)]
    if pod.get("runAsUser") == 0:
        found.append("runAsUser is 0")
    return found


def _containers(spec: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for one in spec.get(kind, ()):
            yield one["name"], one


def _baseline_of_pod(spec: dict[str, Any]) -> Iterator[str]:
    pod = spec.get("securityContext", {})
    yield from (name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name))
    yield from (f"volume {each['name']}: hostPath" for each in spec.get("volumes", ()) if "hostPath" in each)
    if pod.get("seccompProfile", {}).get("type") == "Unconfined":
        yield "seccompProfile is Unconfined"
    for each in pod.get("sysctls", ()):
        if each["name"] not in SAFE_SYSCTLS:
            yield f"sysctl {each['name']}"


def _baseline_of(one: dict[str, Any]) -> Iterator[str]:
    context = one.get("securityContext", {})
    if context.get("privileged"):
        yield "privileged"
    yield from (
        f"capability {each} is added"
        for each in context.get("capabilities", {}).get("add", ())
        if each not in BASELINE_CAPABILITIES
    )
    yield from ("hostPort" for port in one.get("ports", ()) if port.get("hostPort"))
    if context.get("seccompProfile", {}).get("type") == "Unconfined":
        yield "seccompProfile is Unconfined"
    if context.get("procMount", "Default") != "Default":
        yield "procMount"
    if "seLinuxOptions" in context:
        yield "seLinuxOptions"


def _restricted_of(context: dict[str, Any], pod: dict[str, Any]) -> Iterator[str]:
    if context.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if context.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield "runAsNonRoot is not true"
    if context.get("runAsUser") == 0:
        yield "runAsUser is 0"
    profile = context.get("seccompProfile", pod.get("seccompProfile", {})).get("type")
    if profile not in ("RuntimeDefault", "Localhost"):
        yield "seccompProfile is neither RuntimeDefault nor Localhost"
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", ()):
        yield "capabilities: not ALL are dropped"
    yield from (
        f"capability {each} is added" for each in capabilities.get("add", ()) if each != "NET_BIND_SERVICE"
    )
