"""What jobs, users and agents have written, made harmless to a terminal.

A terminal obeys what it is sent: escape sequences move the cursor, rename the window, answer to the program that reads the keyboard, hide what stands there.
So whatever is not a letter is shown as a sign of its own, and nothing is left out: `cat -v` does the same.
"""

import codecs
import re
import sys

_ODD = re.compile(r"[^\n\t\x20-\x7e]")
_PICTURES = 0x2400
"""Where Unicode has a picture for each of the first 32 letters."""
_NOT_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """With every letter that could steer a terminal as a sign; lines and tabs stay."""
    return _ODD.sub(_sign, text)


def harmless_json(text: str) -> str:
    """JSON that means the same, with what is not escaped in it and could steer a terminal."""
    return _NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _sign(found: re.Match[str]) -> str:
    letter = found[0]
    if letter.isprintable():
        return letter
    number = ord(letter)
    if number < 0x20:
        return chr(_PICTURES + number)
    return "\u2421" if number == 0x7F else f"<U+{number:04X}>"


class LogOutput:
    """Where bytes of jobs go: standard output as they are, or harmless where that is a terminal and `raw` was not asked for."""

    def __init__(self, *, raw: bool = False) -> None:
        self._decoder = None if raw or not sys.stdout.isatty() else _decoder()

    def write(self, data: bytes) -> None:
        """Pass on a piece. A letter of several bytes may end in the next one."""
        if self._decoder is not None:
            data = harmless(self._decoder.decode(data).replace("\r\n", "\n")).encode()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")(errors="replace")
