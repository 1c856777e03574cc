"""The client library for Kubernetes without its models of objects: hundreds of modules that nothing here uses, and a third of the agent's memory.

Its packages import every model as soon as one of them is imported. So the three that do are put in place with nothing in them but where their modules lie, and these are
imported as they are.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from federator.kernel.errors import Invalid

_LIBRARY = "kubernetes_asyncio"
_HOLLOW = (_LIBRARY, f"{_LIBRARY}.client", f"{_LIBRARY}.client.models")


class Library(NamedTuple):
    """What of it is used: two classes, and a module."""

    ApiClient: Any
    Configuration: Any
    config: Any


def library() -> Library:
    """It is an extra: a site without Kubernetes does without its 26 MB. Raises `Invalid` where it is not installed."""
    if _LIBRARY not in sys.modules:
        found = find_spec(_LIBRARY)
        if found is None or not found.submodule_search_locations:
            remedy = "install it: pip install 'federator[kubernetes]'"
            raise Invalid("the client for Kubernetes is not installed", field="$.kube", remedy=remedy)
        try:
            _hollow(Path(found.submodule_search_locations[0]).parent)
        except (ImportError, AttributeError):  # a version that is laid out otherwise: all of it, then
            for name in [name for name in sys.modules if name.partition(".")[0] == _LIBRARY]:
                del sys.modules[name]
    from kubernetes_asyncio import client, config  # noqa: PLC0415 - for those who need it

    return Library(client.ApiClient, client.Configuration, config)


def _hollow(folder: Path) -> None:
    for name in _HOLLOW:
        package = ModuleType(name)
        package.__spec__ = ModuleSpec(name, None, is_package=True)
        package.__path__ = [str(folder.joinpath(*name.split(".")))]
        sys.modules[name] = package
    sys.modules[_LIBRARY].client = client = sys.modules[f"{_LIBRARY}.client"]  # type: ignore[attr-defined]
    client.Configuration = import_module(f"{_LIBRARY}.client.configuration").Configuration  # type: ignore[attr-defined]
    client.ApiClient = import_module(f"{_LIBRARY}.client.api_client").ApiClient  # type: ignore[attr-defined]
    import_module(f"{_LIBRARY}.config")
