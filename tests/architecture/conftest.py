"""Trees of all files are kept while a module's tests ask about them: millions of nodes, which the collector would look through again and again."""

import gc
from collections.abc import Iterator

import pytest

from tests.architecture.sources import tree


@pytest.fixture(scope="module", autouse=True)
def _trees() -> Iterator[None]:
    gc.disable()
    yield
    tree.cache_clear()
    gc.enable()
