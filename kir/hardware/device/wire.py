"""Messages between processes: a JSON object and byte strings, over a local socket."""
from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]
Blob = bytes | bytearray | memoryview
MOST_HEADER = 1 << 26
"""Bytes of the largest JSON object that is read."""


class Closed(Exception):
    """The other side is gone."""


def send(to: socket.socket, message: Message, blobs: Sequence[Blob] = ()) -> None:
    """Write one message. Raises Closed."""
    head = json.dumps({"message": message, "blobs": [len(b) for b in blobs]}).encode()
    try:
        to.sendall(struct.pack("<I", len(head)) + head)
        for blob in blobs:
            to.sendall(blob)
    except OSError as gone:
        raise Closed(str(gone)) from gone


def receive(source: socket.socket) -> tuple[Message, list[bytearray]]:
    """Read one message. Raises Closed when the other side is gone or sends nonsense, TimeoutError after the socket's time."""
    (length,) = struct.unpack("<I", _exactly(source, 4))
    if length > MOST_HEADER:
        raise Closed(f"a header of {length} bytes")
    try:
        head = json.loads(bytes(_exactly(source, length)))
        return head["message"], [_exactly(source, int(size)) for size in head["blobs"]]
    except (ValueError, KeyError, TypeError) as nonsense:
        raise Closed(f"no message: {nonsense}") from nonsense


def _exactly(source: socket.socket, size: int) -> bytearray:
    out = bytearray(size)
    view, at = memoryview(out), 0
    while at < size:
        try:
            got = source.recv_into(view[at:], min(size - at, 1 << 24))
        except TimeoutError:
            raise
        except OSError as gone:
            raise Closed(str(gone)) from gone
        if got == 0:
            raise Closed("the connection was closed")
        at += got
    return out
