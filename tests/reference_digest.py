"""BLAKE3 as its paper defines it, in numpy: the digests that the program prints are compared with these.

Section 2 of the BLAKE3 paper (O'Connor, Aumasson, Neves, Wilcox-O'Hearn, 2020). All chunks of a file
are compressed at once, and then all parents of a level.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

CHUNK_BYTES = 1024
BLOCK_BYTES = 64
# Table 3 of the paper.
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8
IV = np.array(
    [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19],
    dtype=np.uint32,
)
PERMUTATION = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]
# The columns and the diagonals of the state, and the words of the message that each takes.
QUARTERS = [
    *((0, 4, 8, 12, 0), (1, 5, 9, 13, 2), (2, 6, 10, 14, 4), (3, 7, 11, 15, 6)),
    *((0, 5, 10, 15, 8), (1, 6, 11, 12, 10), (2, 7, 8, 13, 12), (3, 4, 9, 14, 14)),
]


def digest(content: bytes, *, offset: int = 0, root: bool = True) -> bytes:
    """The digest of `content`, 32 bytes.

    Args:
        content: All of a file; or a subtree of it, that is, one of its blocks.
        offset: Bytes of the file before the subtree.
        root: Whether it is the whole file; else its chaining value.

    """
    first = offset // CHUNK_BYTES
    whole = len(content) // CHUNK_BYTES
    rest = content[whole * CHUNK_BYTES :]
    alone = root and len(content) <= CHUNK_BYTES
    values = []
    if whole:
        values.append(_chunks(content[: whole * CHUNK_BYTES], first=first, flags=ROOT if alone else 0))
    if rest or not whole:
        values.append(_chunks(rest, first=first + whole, flags=ROOT if alone else 0))
    level = np.concatenate(values, axis=1)
    while level.shape[1] > 1:
        last = root and level.shape[1] == 2
        paired = level.shape[1] // 2 * 2
        message = np.concatenate([level[:, 0:paired:2], level[:, 1:paired:2]])
        count = message.shape[1]
        start = np.repeat(IV[:, None], count, axis=1)
        parents = _compress(
            start,
            message,
            counter=np.zeros(count, dtype=np.uint64),
            length=BLOCK_BYTES,
            flags=PARENT | (ROOT if last else 0),
        )
        level = np.concatenate([parents, level[:, paired:]], axis=1)
    return level[:, 0].astype("<u4").tobytes()


def _chunks(content: bytes, *, first: int, flags: int) -> Words:
    """The chaining values, a column each, of whole chunks, or of the one chunk that is not whole."""
    count = max(1, len(content) // CHUNK_BYTES)
    each = CHUNK_BYTES if len(content) >= CHUNK_BYTES else len(content)
    blocks = max(1, -(-each // BLOCK_BYTES))
    padded = content.ljust(count * blocks * BLOCK_BYTES, b"\0")
    words = np.frombuffer(padded, dtype="<u4").astype(np.uint32).reshape(count, blocks, 16)
    counter = np.arange(first, first + count, dtype=np.uint64)
    values: Words = np.repeat(IV[:, None], count, axis=1)
    for block in range(blocks):
        here = (CHUNK_START if block == 0 else 0) | (CHUNK_END | flags if block == blocks - 1 else 0)
        length = min(BLOCK_BYTES, each - block * BLOCK_BYTES)
        values = _compress(values, words[:, block].T, counter=counter, length=length, flags=here)
    return values


def _compress(
    values: Words, message: Words, *, counter: NDArray[np.uint64], length: int, flags: int
) -> Words:
    count = values.shape[1]
    state = np.empty((16, count), dtype=np.uint32)
    state[:8] = values
    state[8:12] = IV[:4, None]
    state[12] = (counter & 0xFFFFFFFF).astype(np.uint32)
    state[13] = (counter >> np.uint64(32)).astype(np.uint32)
    state[14], state[15] = length, flags
    for turn in range(7):
        for a, b, c, d, word in QUARTERS:
            _mix(state, a, b, c, d, message[word], message[word + 1])
        if turn < 6:
            message = message[PERMUTATION]
    mixed: Words = state[:8] ^ state[8:]
    return mixed


def _mix(state: Words, a: int, b: int, c: int, d: int, x: Words, y: Words) -> None:
    state[a] += state[b] + x
    state[d] = _turned(state[d] ^ state[a], 16)
    state[c] += state[d]
    state[b] = _turned(state[b] ^ state[c], 12)
    state[a] += state[b] + y
    state[d] = _turned(state[d] ^ state[a], 8)
    state[c] += state[d]
    state[b] = _turned(state[b] ^ state[c], 7)


def _turned(words: Words, by: int) -> Words:
    turned: Words = (words >> np.uint32(by)) | (words << np.uint32(32 - by))
    return turned
