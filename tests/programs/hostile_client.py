"""Pushes what no client of ours would, and prints what the server said, one JSON message a line.

usage: hostile_client.py ADDRESS PORT DESTINATION CASE OUTSIDE
       CASE is a key of `hostile.CASES`, or honest, truncated:SEED, flipped:SEED,
       or foretold:PATH, of a file of four bytes from 1970
"""

import json
import os
import sys

import hostile
from copy_wire import foretold, push, total


def case_of(name: str, outside: str) -> hostile.Case:
    """What is to be sent."""
    kind, _, seed = name.partition(":")
    if name == "honest":
        return hostile.honest()
    if kind == "truncated":
        return hostile.truncated(int(seed))
    if kind == "flipped":
        return hostile.flipped(int(seed))
    return hostile.CASES[name](os.fsencode(outside))


if __name__ == "__main__":
    address, port, destination, name, outside = sys.argv[1:]
    if name.startswith("foretold:"):
        asked = {"dry_run": True, "update": True}
        told = foretold(name.partition(":")[2], size=4, modified_s=1000)
        frames, messages = b"", told + total()
    else:
        asked = {}
        frames, messages = case_of(name, outside)
    for said in push(
        address, int(port), destination=destination, frames=frames, messages=messages, asked=asked
    ):
        print(json.dumps(said))
