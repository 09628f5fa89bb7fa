# (C) datadog-kueue-gang contributors 2026-present
# All rights reserved
# Licensed under a 3-clause BSD style license (see LICENSE)
"""The payload of a streamed answer, in pieces as large as the network gives them.

An API server sends each event of a watch as an HTTP chunk of its own (RFC 9112, 7.1). Python's HTTP client hands out
one chunk a call, and a streaming list of 100,000 pods is 100,000 chunks: taking the frames off there costs as much as
decoding the JSON inside. Here whatever has arrived is read at once and its frames are taken off together, which costs a
tenth.
"""

from collections.abc import Iterator
from io import BufferedIOBase
from typing import Final

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import IncompleteRead, InvalidChunkLength

#: Most bytes of one read, and of the first.
PIECE: Final = 256 * 1024
_LEAST: Final = 8 * 1024
#: A chunk begins with its size in hexadecimal; nobody needs more digits, or extensions longer than this.
_LONGEST_HEAD: Final = 1024


def payload(response: BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the payload of an open response as it comes. Raises what urllib3 raises."""
    raw = getattr(getattr(response, "_fp", None), "fp", None)
    chunked = response.headers.get("Transfer-Encoding", "").lower() == "chunked"
    if chunked and not response.headers.get("Content-Encoding") and isinstance(raw, BufferedIOBase):
        yield from dechunked(raw, response)
    else:
        while piece := response.read1(PIECE, decode_content=True):
            yield piece


def dechunked(raw: BufferedIOBase, response: BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the payload of a chunked body, without its frames.

    Raises:
        IncompleteRead: the body ended before its last chunk.
        InvalidChunkLength: a chunk has no size.

    """
    rest = b""
    #: Bytes of the present chunk that are still to come, with the line break that ends it.
    open_chunk = 0
    #: Grows with what arrives: a quiet stream must not hold a large buffer while it waits.
    most = _LEAST
    while True:
        data = raw.read1(most)
        most = min(PIECE, max(_LEAST, 2 * len(data)))
        if not data:
            # How much of a body without length is missing is not known; its text needs a number.
            raise IncompleteRead(0, open_chunk)
        data = rest + data
        pieces: list[bytes] = []
        position = 0
        while position < len(data):
            if open_chunk:
                end = min(position + open_chunk, len(data))
                # The last two bytes of a chunk are its line break.
                inside = min(end, position + max(0, open_chunk - 2))
                pieces.append(data[position:inside])
                open_chunk -= end - position
                position = end
                continue
            line = data.find(b"\r\n", position)
            if line < 0:
                if len(data) - position > _LONGEST_HEAD:
                    raise InvalidChunkLength(response, data[position : position + 20])  # type: ignore[arg-type]
                break
            head = data[position:line].partition(b";")[0]
            try:
                size = int(head, 16)
            except ValueError:
                raise InvalidChunkLength(response, head) from None  # type: ignore[arg-type]
            if not size:
                yield from filter(None, (b"".join(pieces),))
                return
            open_chunk = size + 2
            position = line + 2
        rest = data[position:]
        found = b"".join(pieces)
        # Nothing is held while the next read waits, perhaps for minutes.
        del data, pieces
        if found:
            yield found
        del found
