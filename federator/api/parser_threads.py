"""What takes long to parse is parsed in a thread, so that the event loop does not wait for it.

A thread, and not a process: with the parser in C and the limits on what is parsed, a text takes half a second at most, in which the loop gets the
interpreter back every five milliseconds. A process would have to be started, fed, limited and ended, and hand over as much as it has read.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_parsers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="parsing")
"""More would take the interpreter from each other, and from the loop."""


async def in_thread(parse: Callable[[str], T], text: str) -> T:
    """What `parse` makes of the text; its errors are raised here."""
    return await asyncio.get_running_loop().run_in_executor(_parsers, parse, text)
