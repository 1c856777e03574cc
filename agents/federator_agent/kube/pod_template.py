"""What a site lays over the pods of its jobs: a part of a pod template, in the words of Kubernetes, merged as `kubectl` merges a strategic patch.

What the agent lives by cannot be laid over – gate, finalizer, labels, users, deadlines –, and what has a key of its own in the site file is written there: reports
of free nodes read those keys. Both are refused when the site file is read, with the remedy. What is nested deeper is checked by the API server when a pod is made.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from federator.kernel.errors import Invalid
from federator.wire import fields
from federator.wire.nearest import nearest

MOST_BYTES = 64 * 1024
OWN_LABELS = "federator/"
KUEUE = "kueue.x-k8s.io/"
FOLDER = "/federator"
OURS = ("main", "side")
"""The containers of a pod: the job's, and the one beside it."""
_USERS = ("runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup")
_POD = (
    "containers", "dnsConfig", "dnsPolicy", "hostAliases", "hostIPC", "hostNetwork", "hostUsers", "imagePullSecrets", "initContainers", "nodeSelector",
    "overhead", "preemptionPolicy", "priorityClassName", "readinessGates", "resourceClaims", "runtimeClassName", "schedulerName", "schedulingGates",
    "securityContext", "setHostnameAsFQDN", "topologySpreadConstraints", "volumes",
)  # fmt: skip
_NO_POD = {
    "activeDeadlineSeconds": "jobs say it as max_duration",
    "affinity": "write nodeSelector here, or a selector in kube.pools",
    "automountServiceAccountToken": "jobs get no token; a projected volume may bring one of a narrower audience",
    "enableServiceLinks": "leave it out: jobs see no Services",
    "ephemeralContainers": "leave it out",
    "hostPID": "leave it out: the containers of a pod share their own processes",
    "hostname": "leave it out: it is the rank's",
    "nodeName": "leave it out: the scheduler chooses",
    "restartPolicy": "leave it out: a pod of a job never starts again",
    "serviceAccount": "write kube.service_account or kube.service_accounts",
    "serviceAccountName": "write kube.service_account or kube.service_accounts",
    "shareProcessNamespace": "leave it out: signals reach the job by it",
    "subdomain": "leave it out: it is the gang's",
    "terminationGracePeriodSeconds": "jobs say it as grace",
    "tolerations": "write kube.tolerations, so that such nodes are counted",
}
_CONTAINER = (
    "env", "envFrom", "imagePullPolicy", "name", "resources", "securityContext", "volumeDevices", "volumeMounts",
)  # fmt: skip
_NO_CONTAINER = {
    "args": "leave it out: jobs say what runs",
    "command": "leave it out: jobs say what runs",
    "image": "write kube.image or kube.side_image",
    "livenessProbe": "leave it out: no container of a job starts again",
    "readinessProbe": "leave it out: services have checks of their own",
    "startupProbe": "leave it out: no container of a job starts again",
    "workingDir": "leave it out: it is the work directory",
}
_LOOSER = ("hostIPC", "hostNetwork", "initContainers", "securityContext", "volumes")
"""What may go beyond the profile "restricted"."""
_KEYS = {
    "containers": ("name",),
    "env": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ports": ("containerPort", "protocol"),
    "resourceClaims": ("name",),
    "claims": ("name",),
    "schedulingGates": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""By what entries of a list are the same; any other list is replaced whole."""


def read_template(value: object, path: str) -> dict[str, Any]:
    """A part of a pod template: `metadata` and `spec`. Raises `Invalid` for what is not to be laid over."""
    given = dict(fields.mapping(value, path))
    try:
        size = len(msgspec.json.encode(given))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise Invalid(f"cannot be written as JSON: {error}", field=path) from None
    except RecursionError:
        raise Invalid("is nested too deeply", field=path) from None
    if size > MOST_BYTES:
        raise Invalid(f"has {size} bytes; at most {MOST_BYTES} are taken", field=path)
    fields.known_only(given, path, ("metadata", "spec"))
    metadata = dict(fields.mapping(given.get("metadata", {}), f"{path}.metadata"))
    fields.known_only(metadata, f"{path}.metadata", ("labels", "annotations"))
    for kind, entries in metadata.items():
        _check_marks(entries, f"{path}.metadata.{kind}")
    _check_spec(given.get("spec", {}), f"{path}.spec")
    return given


def _check_marks(value: object, path: str) -> None:
    for name in fields.pairs(value, path, limit=100):
        if name.startswith(OWN_LABELS):
            raise Invalid("is Federator's own", field=f"{path}.{name}", remedy="choose another prefix")
        if name == f"{KUEUE}queue-name":
            raise Invalid(
                "has a key of its own",
                field=f"{path}.{name}",
                remedy="write kube.kueue_queue or kueue_queues",
            )
        if name.startswith((f"{KUEUE}pod-group", f"{KUEUE}retriable")):
            raise Invalid("is Federator's own", field=f"{path}.{name}", remedy="leave it out")


def _check_spec(value: object, path: str) -> None:
    spec = fields.mapping(value, path)
    _check_names(spec, path, _POD, _NO_POD)
    if "nodeSelector" in spec:
        fields.pairs(spec["nodeSelector"], f"{path}.nodeSelector", limit=100)
    _check_users(spec, path)
    for kind in ("containers", "initContainers"):
        for number, entry in enumerate(_list(spec.get(kind, []), f"{path}.{kind}")):
            where = f"{path}.{kind}[{number}]"
            container = fields.mapping(entry, where)
            name = fields.text(container.get("name"), f"{where}.name", limit=63)
            if kind == "containers":
                _check_container(container, name, where)
            elif name in OURS:
                raise Invalid(f"{name!r} is taken", field=f"{where}.name", remedy="choose another name")
    for number, entry in enumerate(_list(spec.get("volumes", []), f"{path}.volumes")):
        name = str(fields.mapping(entry, f"{path}.volumes[{number}]").get("name"))
        if name in ("federator", "gate", "shm", "checkpoints") or name.startswith("data-"):
            raise Invalid(
                f"{name!r} is taken", field=f"{path}.volumes[{number}].name", remedy="choose another name"
            )


def _check_container(container: Mapping[str, object], name: str, path: str) -> None:
    if name not in OURS:
        remedy = "name main or side; a container of your own goes into initContainers, with restartPolicy: Always if it is to stay"
        raise Invalid(f"there is no container {name!r}", field=f"{path}.name", remedy=remedy)
    _check_names(container, path, _CONTAINER, _NO_CONTAINER)
    _check_users(container, path)
    for number, entry in enumerate(_list(container.get("env", []), f"{path}.env")):
        variable = str(fields.mapping(entry, f"{path}.env[{number}]").get("name"))
        if variable.startswith("FEDERATOR_"):
            raise Invalid(
                f"{variable} is Federator's own", field=f"{path}.env[{number}].name", remedy="leave it out"
            )
    for number, entry in enumerate(_list(container.get("volumeMounts", []), f"{path}.volumeMounts")):
        where = f"{path}.volumeMounts[{number}].mountPath"
        at = fields.text(fields.mapping(entry, where).get("mountPath"), where, limit=4096)
        if f"{at.rstrip('/')}/".startswith(f"{FOLDER}/"):
            raise Invalid("is taken", field=where, remedy="mount it elsewhere, such as at /opt")
    resources = fields.mapping(container.get("resources", {}), f"{path}.resources")
    for kind in ("requests", "limits"):
        for resource in fields.mapping(resources.get(kind, {}), f"{path}.resources.{kind}"):
            if "/" not in resource or "gpu" in resource.lower():
                remedy = "jobs say it in their resources; a LimitRange bounds it"
                raise Invalid(
                    "is the job's to say", field=f"{path}.resources.{kind}.{resource}", remedy=remedy
                )


def _check_names(
    given: Mapping[str, object], path: str, taken: tuple[str, ...], refused: Mapping[str, str]
) -> None:
    for name in given:
        if name in refused:
            raise Invalid("cannot be laid over", field=f"{path}.{name}", remedy=refused[name])
        if name not in taken:
            near = nearest(name, taken)
            remedy = f"did you mean {near}?" if near else f"known are {', '.join(taken)}"
            raise Invalid(f"there is no field {name[:80]!r}", field=f"{path}.{name[:80]}", remedy=remedy)


def _check_users(given: Mapping[str, object], path: str) -> None:
    context = fields.mapping(given.get("securityContext", {}), f"{path}.securityContext")
    for name in _USERS:
        if name in context:
            remedy = "write kube.run_as: all containers of a job are one user"
            raise Invalid("cannot be laid over", field=f"{path}.securityContext.{name}", remedy=remedy)


def _list(value: object, path: str) -> list[object]:
    if not isinstance(value, list) or len(value) > 100:
        raise Invalid("is not a list of at most 100 entries", field=path, remedy="write [{…}]")
    return value


def loosened(template: Mapping[str, Any]) -> list[str]:
    """What of it may go beyond the pod security profile that pods keep to without it."""
    spec: Mapping[str, Any] = template.get("spec", {})
    found = [name for name in _LOOSER if spec.get(name)]
    if any(each.get("securityContext") for each in spec.get("containers", ())):
        found.append("containers[].securityContext")
    return found


def selector(template: Mapping[str, Any]) -> dict[str, str]:
    """Labels that nodes must have for pods of this template."""
    spec: Mapping[str, Any] = template.get("spec", {})
    return fields.pairs(spec.get("nodeSelector", {}), "$", limit=100)


def laid_over(pod: dict[str, Any], *templates: Mapping[str, Any]) -> dict[str, Any]:
    """The pod with each of these over it, the last one on top. Nothing of what is given changes."""
    for template in templates:
        pod = merged(pod, template)
    return pod


def merged(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """A strategic merge: mappings together, lists of named things by their names, other lists replaced, null taken away."""
    found = dict(below)
    for name, value in above.items():
        if value is None:
            found.pop(name, None)
        elif isinstance(value, Mapping):
            now = found.get(name)
            found[name] = merged(now if isinstance(now, dict) else {}, value)
        elif isinstance(value, list) and name in _KEYS:
            found[name] = _merged_list(found.get(name) or [], value, _KEYS[name])
        else:
            found[name] = value
    return found


def _merged_list(
    below: list[dict[str, Any]], above: list[dict[str, Any]], keys: tuple[str, ...]
) -> list[dict[str, Any]]:
    found = list(below)
    for entry in above:
        same = [
            index for index, each in enumerate(found) if all(each.get(key) == entry.get(key) for key in keys)
        ]
        if same:
            found[same[0]] = merged(found[same[0]], entry)
        else:
            found.append(entry)
    return found
