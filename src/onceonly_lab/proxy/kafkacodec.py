"""The pieces that Kafka's messages are made of, old ("strings with a length") and flexible ("compact, with tags")."""

from __future__ import annotations

import struct


class Reader:
    """Walks through one message. Running over its end raises ``struct.error`` or ``IndexError``.

    Attributes:
        at: position of the next byte.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def int8(self) -> int:
        """One byte, signed."""
        return self._number(">b")

    def int16(self) -> int:
        """Two bytes, signed."""
        return self._number(">h")

    def int32(self) -> int:
        """Four bytes, signed."""
        return self._number(">i")

    def int64(self) -> int:
        """Eight bytes, signed."""
        return self._number(">q")

    def uvarint(self) -> int:
        """Seven bits per byte, the lowest first."""
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def skip(self, size: int) -> None:
        """Leave bytes out."""
        self.at += size

    def pass_over(self, fields: str, flexible: bool = False) -> None:
        """Leave fields out: ``b``, ``h``, ``i``, ``q`` are numbers as in :mod:`struct`, ``s`` is text."""
        for field in fields:
            if field == "s":
                self.string(flexible)
            else:
                self.skip(struct.calcsize(f">{field}"))

    def string(self, flexible: bool = False) -> str | None:
        """Text; ``None`` for null."""
        size = self.uvarint() - 1 if flexible else self.int16()
        if size < 0:
            return None
        self.at += size
        return self.data[self.at - size : self.at].decode(errors="replace")

    def length(self, flexible: bool = False) -> int:
        """Number of an array's elements; 0 for null."""
        return max(0, self.uvarint() - 1 if flexible else self.int32())

    def tags(self, flexible: bool = True) -> None:
        """Leave out the tagged fields that end every structure of a flexible message."""
        for _ in range(self.uvarint() if flexible else 0):
            self.uvarint()
            self.skip(self.uvarint())

    def _number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)


def string(text: str) -> bytes:
    """Text with its length before it, the old way."""
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
