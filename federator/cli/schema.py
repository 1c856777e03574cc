"""`schema`: the JSON Schemas of files that people and programs write, for editors and for checks before a commit."""

from collections.abc import Callable
from typing import Any, Literal

from federator.cli.output import show_data
from federator.wire.schema import file_schema, record_schema

File = Literal["job", "operator", "policy", "service", "settings", "site", "solver-plan", "solver-problem"]


def schema(file: File, /) -> None:
    """Print the JSON Schema of a kind of file. It asks no dispatcher.

    Parameters
    ----------
    file:
        A job file or that of a service, an operator's file, policy documents, the dispatcher's settings, an agent's site file, or what `federator solver` reads and writes.
    """
    show_data(SCHEMAS[file](), "json", as_it_is=True)


def _job() -> dict[str, Any]:
    from federator.wire.jobfile import JobFile

    return file_schema(JobFile, "A job of Federator")


def _operator() -> dict[str, Any]:
    from federator.operator.settings import OperatorFile

    return file_schema(OperatorFile, "An operator of FederatedJob objects")


def _policy() -> dict[str, Any]:
    from federator_policies.schema import document_schema

    return document_schema()


def _service() -> dict[str, Any]:
    from federator.wire.servicefile import ServiceFile

    return file_schema(ServiceFile, "A service of Federator")


def _settings() -> dict[str, Any]:
    from federator.settings import Settings
    from federator_providers.aws.settings import AwsSettings
    from federator_providers.azure.settings import AzureSettings
    from federator_providers.gce.settings import GceSettings
    from federator_providers.kubernetes.settings import KubernetesSettings
    from federator_providers.local.settings import LocalSettings
    from federator_providers.ssh.settings import SshSettings

    schema = file_schema(Settings, "Settings of the dispatcher of Federator")
    providers = {
        "aws": record_schema(AwsSettings),
        "azure": record_schema(AzureSettings),
        "gce": record_schema(GceSettings),
        "kubernetes": record_schema(KubernetesSettings),
        "local": record_schema(LocalSettings),
        "ssh": record_schema(SshSettings),
    }
    parts = schema["$defs"]
    parts["ProviderSettings"]["allOf"] = [
        {
            "if": {"properties": {"type": {"const": name}}},
            "then": {"properties": {"settings": {"$ref": each["$ref"]}}},
        }
        for name, each in providers.items()
    ]
    for each in providers.values():
        parts |= each["$defs"]
    return schema


def _site() -> dict[str, Any]:
    from federator_agent.site_file import SiteFile

    return file_schema(SiteFile, "A site of Federator")


def _solver_plan() -> dict[str, Any]:
    from federator.wire.solver_plan import PlanFile

    return file_schema(PlanFile, "A plan for Federator's solver, format 1")


def _solver_problem() -> dict[str, Any]:
    from federator.wire.solver_problem import ProblemFile

    return file_schema(ProblemFile, "A problem for Federator's solver, format 1")


SCHEMAS: dict[File, Callable[[], dict[str, Any]]] = {
    "job": _job,
    "operator": _operator,
    "policy": _policy,
    "service": _service,
    "settings": _settings,
    "site": _site,
    "solver-plan": _solver_plan,
    "solver-problem": _solver_problem,
}
