"""What takes long to read is read beside the event loop, so that nobody else waits for it.

A thread, and not a process: with the parser in C and the limits on what is parsed, a text takes half a second at most, in which the loop gets the
interpreter back every five milliseconds. A process would have to be started, fed, limited and ended, and hand over as much as it has read.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_readers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="reading")
"""More would take the interpreter from each other, and from the loop."""


async def aside(read: Callable[[str], T], text: str) -> T:
    """What `read` makes of the text; its errors are raised here."""
    return await asyncio.get_running_loop().run_in_executor(_readers, read, text)
