"""A connection as a plan has it, which Python reads, and as `farlink emulate` has it, which Rust reads."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from farlink_lab.plan_file import CONNECTION_KEYS, FRAMINGS, PlanError, parse_plan
from farlink_lab.run.emulation import Emulation as OfThePlan

from emulation import FARLINK, Emulation, farlink, refused
from help import flags_of

if TYPE_CHECKING:
    from pathlib import Path

# What the lab decides by itself, or a plan says elsewhere (`rtts`).
NOT_OF_THE_CONNECTION = {"--name", "--hosts", "--rtt", "--prefault", "--json"}
# What no plan varies so far.
NOT_IN_PLANS = {"--jitter", "--reorder", "--duplicate", "--corrupt"}

REST = 'rtts = ["1ms"]\n[[configuration]]\nbytes = "1MiB"\n'


def plan_of(connection: str) -> str:
    """A plan that says `connection` of its connection."""
    return f"{REST}[connection]\n{connection}\n"


def test_a_plan_offers_every_option_of_emulate_but_those_named_here() -> None:
    keys = {f"--{key}" for key in CONNECTION_KEYS}
    assert not keys & (NOT_IN_PLANS | NOT_OF_THE_CONNECTION)
    assert keys | NOT_IN_PLANS | NOT_OF_THE_CONNECTION == flags_of("emulate")


@pytest.mark.parametrize("framing", FRAMINGS)
def test_what_a_plan_leaves_out_is_what_emulate_does_without_it(framing: str) -> None:
    connection = parse_plan(plan_of(f'framing = "{framing}"'), name="plan").connection
    of_the_plan = OfThePlan(str(FARLINK), connection, congestion=None, rtt_s=0.001, longest_rtt_s=0.001)
    with Emulation(options=["--framing", framing]) as plain, of_the_plan as started:
        for field in ("rate_bps", "queue_bytes", "framing", "mtu", "loss", "background_bps", "seed"):
            assert started.state[field] == plain.started[field], field


def test_a_framing_that_plans_do_not_know_is_none_of_emulates() -> None:
    complaint = refused("emulate", "--framing", "token-ring", "--", "true")
    known = re.search(r"choose ([a-z, ]+) \(", complaint)
    assert known, complaint
    assert re.split(", | or ", known[1]) == list(FRAMINGS)


@pytest.mark.parametrize(
    ("key", "value", "is_fine"),
    [
        ("mtu", "1279", False),
        ("mtu", "1280", True),
        ("mtu", "65535", True),
        ("mtu", "65536", False),
        ("queue", "0ms", False),
        ("queue", "1B", True),
        ("loss", "100%", True),
        ("loss", "101%", False),
        ("loss", "every:0", False),
        ("loss", "every:1", True),
        ("background", "none", True),
        ("background", "3gbit,on-off:100ms", True),
        ("background", "3gbit,on-off:0ms", False),
        ("background", "3gbit,sometimes", False),
        ("background", "9gbit", True),
        ("background", "10gbit", False),
        ("rate", "11tbit", False),
        ("rate", "-1gbit", False),
        ("rate", "1mbit", True),
    ],
)
def test_both_refuse_the_same(key: str, value: str, is_fine: bool) -> None:
    shown = value if value.isdigit() else f'"{value}"'
    if is_fine:
        assert farlink("emulate", f"--{key}", value, "--", "true").status == 0
        parse_plan(plan_of(f"{key} = {shown}"), name="plan")
    else:
        refused("emulate", f"--{key}", value, "--", "true")
        with pytest.raises(PlanError, match=key):
            parse_plan(plan_of(f"{key} = {shown}"), name="plan")


def test_a_run_has_the_queue_of_its_configuration(tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    plan.write_text(
        'rtts = ["1ms"]\nrepetitions = 2\n[connection]\nrate = "1gbit"\nqueue = "10ms"\n'
        'background = "100mbit,on-off:10ms"\n'
        '[[configuration]]\nlabel = "{queue}"\nqueue = ["20ms", "64KiB"]\nbytes = "1MiB"\n'
        '[[configuration]]\nlabel = "the connection\'s"\nbytes = "1MiB"\n'
    )
    ended = farlink("lab", "profile", str(plan), "--out", str(out))
    assert ended.status == 0, ended
    records = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    held = {"20 ms": 2_500_000, "64 KiB": 65_536, "the connection's": 1_250_000}
    found = [(record["lab"]["configuration"], record["queue_bytes"]) for record in records]
    assert sorted(found) == sorted(2 * list(held.items()))
    assert {(record["outcome"], record["background_bps"]) for record in records} == {("ok", 50_000_000)}
