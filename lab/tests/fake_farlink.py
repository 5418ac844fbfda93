"""`farlink` as the lab sees it, without a kernel's help: transfers take no time and follow the model.

State is in the directory FAKE_STATE. FAKE_FAIL names an RTT in nanoseconds at which transfers fail; FAKE_WAIT makes
each transfer wait so many seconds for an interruption; FAKE_DIE makes the emulation end with the first transfer;
FAKE_REFUSE makes it refuse to start; FAKE_NO_HTCP leaves it without a congestion control, and FAKE_MUTE without
words on which there are.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

STATE = Path(os.environ["FAKE_STATE"])
CAPACITY = 9.9e9


def main(verb: str, *args: str) -> int:
    log = STATE / "log"
    with log.open("a") as out:
        out.write(json.dumps([verb, *args]) + "\n")
    return {
        "emulate": emulate,
        "link": link,
        "on": on,
        "serve": serve,
        "memory": memory,
        "congestion": congestion,
        "--version": version,
    }[verb](*args)


def version() -> int:
    print("farlink 0.0.1")
    return 0


def congestion(*_args: str) -> int:
    had = [{"name": name, "state": "available"} for name in ("reno", "cubic", "bbr")]
    htcp = "unavailable" if "FAKE_NO_HTCP" in os.environ else "loadable"
    ours = [
        {"name": "htcp", "state": htcp, "reason": "run it as root"},
        {"name": "circuit", "state": "loadable"},
    ]
    print("no answer" if "FAKE_MUTE" in os.environ else json.dumps(had + ours))
    return 0


def emulate(*args: str) -> int:
    if "FAKE_REFUSE" in os.environ:
        print("farlink: /dev/net/tun: permission denied: run it as root", file=sys.stderr)
        return 2
    options = dict(zip(args[::2], args[1::2], strict=False)) if "--json" not in args else pairs(args)
    name = options["--name"]
    path = STATE / f"{name}.json"
    path.write_text(
        json.dumps(
            {
                "rtt": options["--rtt"],
                "queue": options["--queue"],
                "congestion": options.get("--congestion"),
                "sent": 0,
                "pid": os.getpid(),
            }
        )
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(json.dumps(shown(name)), flush=True)
    try:
        while True:
            time.sleep(60)
    finally:
        path.unlink(missing_ok=True)


def pairs(args):
    rest = [arg for arg in args if arg != "--json"]
    return dict(zip(rest[::2], rest[1::2], strict=True))


def shown(name):
    state = json.loads((STATE / f"{name}.json").read_text())
    rtt = int(state["rtt"].removesuffix("ns")) / 1e9
    link = {"from": "a", "to": "b", "dropped": {"unread": 0}, "late": [[0.0001, state["sent"]]]}
    return {
        "name": name,
        "seed": 1,
        "rate_bps": 10_000_000_000,
        "goodput_bps": CAPACITY,
        "rtt_s": rtt,
        "loss": 0.0,
        "queue_bytes": queue_bytes(state["queue"]),
        "background_bps": 0,
        "framing": "ethernet",
        "mtu": 9000,
        "congestion": state["congestion"],
        "scheduling": "fifo",
        "overrun_limit_s": 0.00025,
        "hosts": [{"name": "a", "ipv4": "198.18.0.1"}, {"name": "b", "ipv4": "198.18.0.2"}],
        "links": [link],
    }


def queue_bytes(queue):
    # 10 Gb/s are 1.25 bytes in a nanosecond.
    for unit, scale in (("ns", 1.25), ("ms", 1.25e6), ("B", 1)):
        if queue.endswith(unit):
            return round(scale * int(queue.removesuffix(unit)))
    raise ValueError(queue)


def link(name: str, *args: str) -> int:
    if not (STATE / f"{name}.json").exists():
        print(f"farlink: no emulation {name}", file=sys.stderr)
        return 2
    if args[0] == "--json":
        print(json.dumps(shown(name)))
    else:
        change(name, **{args[0].removeprefix("--"): args[1]})
    return 0


def change(name, **changes):
    path = STATE / f"{name}.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps(state | changes))


def on(place: str, _dashes: str, *command: str) -> int:
    os.environ["FAKE_NAME"] = place.partition("/")[0]
    if command[0] == "cat":
        print("  0: 00000000:1388 00000000:0000 0A 0 0")
        return 0
    os.execvp(command[0], command)


def serve() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("listening on 198.18.0.2:5210", flush=True)
    time.sleep(600)
    return 0


def memory(_address: str, *args: str) -> int:
    name = os.environ["FAKE_NAME"]
    options = dict(zip(args[::1], (*args[1:], "")))
    state = json.loads((STATE / f"{name}.json").read_text())
    rtt = int(state["rtt"].removesuffix("ns"))
    change(name, sent=state["sent"] + 1000)
    if "FAKE_DIE" in os.environ:
        os.kill(state["pid"], signal.SIGTERM)
        time.sleep(0.3)
        print("farlink: the far side is gone", file=sys.stderr)
        return 2
    if os.environ.get("FAKE_FAIL") == str(rtt):
        print("farlink: connection refused", file=sys.stderr)
        return 2
    outcome = "ok"
    if "FAKE_WAIT" in os.environ:
        try:
            (STATE / "waiting").touch()
            time.sleep(float(os.environ["FAKE_WAIT"]))
        except KeyboardInterrupt:
            outcome = "interrupted"
    size = int(options["--bytes"].removesuffix("B")) if "--bytes" in options else None
    rate = CAPACITY / (1 + rtt / 1e9 * 5) * random.Random(rtt).uniform(0.99, 1.01)
    seconds = 8 * size / rate if size else float(options["--seconds"])
    print(
        json.dumps(
            {
                "schema": 1,
                "id": "f" * 32,
                "kind": "memory",
                "mode": "size" if size else "duration",
                "started": "2026-01-01T00:00:00Z",
                "duration_s": seconds,
                "bytes": size or round(rate * seconds / 8),
                "rtt_s": rtt / 1e9,
                "goodput_bps": CAPACITY,
                "queue_bytes": shown(name)["queue_bytes"],
                "congestion": options.get("--congestion", "cubic"),
                "streams": int(options["--streams"]),
                "tool": "farlink",
                "version": "0.0.1",
                "outcome": outcome,
                "unknown_field": {"kept": True},
            }
        )
    )
    return 130 if outcome == "interrupted" else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
