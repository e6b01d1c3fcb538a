"""XXH64 of many values at once with numpy, with own seeds.

The library takes one value at a time. The algorithm is the public one of xxHash, for inputs of any length. Values of
one length go through it side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_STRIPE = 32


def of_values(data: Bytes, starts: Places, lengths: Places, seeds: Words) -> Words:
    """Hash each value with its own seed, in order. ``starts`` and ``lengths`` are in bytes of ``data``."""
    hashes = np.empty(len(lengths), np.uint64)
    for length in np.unique(lengths).tolist():
        at = np.flatnonzero(lengths == length)
        rows = data[starts[at][:, None] + np.arange(length)]
        hashes[at] = of_rows(rows, seeds[at])
    return hashes


def of_one(value: bytes, seeds: Words) -> Words:
    """Hash one value with each of the seeds."""
    return of_rows(np.frombuffer(value, np.uint8).reshape(1, len(value)), seeds)


def of_rows(rows: Bytes, seeds: Words) -> Words:
    """Hash each row of bytes with its own seed. A single row is hashed with each of the seeds."""
    length, done = rows.shape[1], 0
    p1, p2, p3, p4, p5 = (np.uint64(prime) for prime in (_P1, _P2, _P3, _P4, _P5))
    # Sums and products are meant to wrap around.
    with np.errstate(over="ignore"):
        if length >= _STRIPE:
            lanes = [seeds + (p1 + p2), seeds + p2, seeds.copy(), seeds - p1]
            while length - done >= _STRIPE:
                lanes = [_round(lane, _words(rows, done + 8 * at, 8)) for at, lane in enumerate(lanes)]
                done += _STRIPE
            hashes = sum((_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)), np.uint64(0))
            for lane in lanes:
                hashes = (hashes ^ _round(np.zeros_like(lane), lane)) * p1 + p4
        else:
            hashes = seeds + p5
        hashes = hashes + np.uint64(length)
        while length - done >= 8:
            word = _words(rows, done, 8)
            hashes = _turned(hashes ^ _round(np.zeros_like(word), word), 27) * p1 + p4
            done += 8
        if length - done >= 4:
            hashes = _turned(hashes ^ (_words(rows, done, 4) * p1), 23) * p2 + p3
            done += 4
        for at in range(done, length):
            hashes = _turned(hashes ^ (rows[:, at].astype(np.uint64) * p5), 11) * p1
        hashes = (hashes ^ (hashes >> np.uint64(33))) * p2
        hashes = (hashes ^ (hashes >> np.uint64(29))) * p3
        return _words_of(hashes ^ (hashes >> np.uint64(32)))


def _words(rows: Bytes, at: int, width: int) -> Words:
    """Read little-endian numbers that begin at a column."""
    cut = np.ascontiguousarray(rows[:, at : at + width])
    return _words_of(cut.view("<u8" if width == 8 else "<u4")[:, 0].astype(np.uint64))


def _words_of(array: Any) -> Words:
    """Cast numpy's own types of sums and shifts, which are too general."""
    words: Words = array
    return words


def _round(lane: Words, word: Words) -> Words:
    return _words_of(_turned(lane + word * np.uint64(_P2), 31) * np.uint64(_P1))


def _turned(words: Any, by: int) -> Words:
    return _words_of((words << np.uint64(by)) | (words >> np.uint64(64 - by)))
