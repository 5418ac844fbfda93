"""Plans: what they mean, and one clear line for each way to get one wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farlink_lab.plan import Configuration, Connection
from farlink_lab.plan_file import PlanError, parse_plan, read_plan
from farlink_lab.schedule import TimeLeft, identity, schedule
from farlink_lab.search import PlanSearch

PLANS = Path(__file__).parents[2] / "plans"
GOOD = 'rtts = ["1ms"]\n[[configuration]]\nseconds = 1\n'
FILE = GOOD.replace("seconds = 1", 'bytes = "1MB"')


def refusal(text):
    with pytest.raises(PlanError) as caught:
        parse_plan(text, name="x")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rtts = [", "not TOML"),
        ("", "rtts: at least one is needed"),
        ('rtts = ["1ms"]', "configuration: at least one is needed"),
        ('rtss = ["1ms"]\n' + GOOD, "unknown key rtss: did you mean rtts?"),
        (GOOD.replace('rtts = ["1ms"]\n', ""), "rtts: at least one is needed"),
        (GOOD.replace('"1ms"', '"1"'), 'rtts[0]: "1" has no unit: write it as in 91.6ms'),
        (GOOD.replace('"1ms"', "1"), 'rtts[0]: "1" has no unit'),
        (GOOD.replace('"1ms"', '"0ms"'), 'rtts[0]: "0ms" is not an RTT: more than 0 and at most 10s'),
        (GOOD.replace('"1ms"', '"1h"'), 'rtts[0]: "1h" is not an RTT'),
        (GOOD.replace('"1ms"', '"1ms", "1000us"'), "rtts: 1 ms stands twice"),
        ("repetitions = 0\n" + GOOD, "repetitions: 0 is not a whole number from 1 to 1000"),
        ("repetitions = true\n" + GOOD, "repetitions: True is not a whole number"),
        ("seed = -1\n" + GOOD, "seed: -1 is not a whole number"),
        ("name = 3\n" + GOOD, "name: 3 is not a text"),
        (GOOD + '[connection]\nrate = "10"\n', 'connection.rate: "10" has no unit: write it as in 10gbit'),
        (GOOD + '[connection]\nrate = "0gbit"\n', 'connection.rate: "0gbit" is zero'),
        (
            GOOD + '[connection]\nrtt = "1ms"\n',
            "unknown key connection.rtt: rtts belongs at the top of the plan",
        ),
        (GOOD + "[connection]\nrepetitions = 3\n", "repetitions: repetitions belongs at the top of the plan"),
        (GOOD + "[connection]\nstreams = 3\n", "connection.streams: streams belongs in a [[configuration]]"),
        ('rate = "1gbit"\n' + GOOD, "unknown key rate: rate belongs in [connection]"),
        ("mtu = 1500\n" + GOOD, "unknown key mtu: mtu belongs in [connection]"),
        ('queue = "1ms"\n' + GOOD, "queue belongs in [connection] or in a [[configuration]]"),
        ('rtt = "1ms"\n' + GOOD, "unknown key rtt: did you mean rtts?"),
        ("streams = 3\n" + GOOD, "unknown key streams: streams belongs in a [[configuration]]"),
        (
            GOOD + 'framing = "none"\n',
            "unknown key configuration[0].framing: framing belongs in [connection]",
        ),
        (GOOD.replace("[configuration]", "[configurations]"), "configurations: write [[configuration]]"),
        (GOOD + '[connections]\nrate = "1gbit"\n', "unknown key connections: write [connection]"),
        (GOOD + "[connection]\nmtu = 100\n", "connection.mtu: 100 is not a whole number from 1280 to 65535"),
        (GOOD + '[connection]\nloss = "101%"\n', 'connection.loss: "101%" is not a share'),
        (
            GOOD + '[connection]\nloss = "every:0"\n',
            'connection.loss: "every:0" is not a loss: write a share, as in 1%, or one segment of a number',
        ),
        (GOOD + '[connection]\nloss = "often:9"\n', 'connection.loss: "often:9" is not a loss'),
        (GOOD + 'interval = "1ms"\n', 'configuration[0].interval: "1ms" is not a time from 10ms to 10s'),
        (GOOD + 'interval = "10"\n', 'configuration[0].interval: "10" has no unit'),
        (
            GOOD + 'interval = "10ms"\nmover = "iperf3"\n',
            "configuration[0].interval: only farlink's samples can be chosen: leave it out",
        ),
        (GOOD + '[connection]\nqueue = "50"\n', 'connection.queue: "50" has no unit'),
        (GOOD + '[connection]\nframing = "token ring"\n', "is none of ethernet, sonet, none"),
        (GOOD + '[connection]\nframing = "sonet"\nrate = "10gbit"\n', "sonet means OC-192"),
        (
            GOOD + '[connection]\nbackground = "10gbit"\n',
            "connection.background: other traffic takes the whole rate",
        ),
        (
            GOOD + '[connection]\nbackground = "3gbit,sometimes"\n',
            'connection.background: "3gbit,sometimes" is no background load: write 3gbit, or 3gbit,on-off:',
        ),
        (GOOD + '[connection]\nbackground = "3gbit,on-off:0ms"\n', "is no background load: write 3gbit"),
        (GOOD + '[connection]\nbackground = "3gbit,on-off:5"\n', 'connection.background: "5" has no unit'),
        (
            GOOD + '[connection]\nbackground = "10gbit,on-off:1s"\n',
            "connection.background: other traffic takes the whole rate",
        ),
        (
            GOOD + '[connection]\nqueue = ["10ms", "50ms"]\n',
            "connection.queue: a connection has one: write the list as queue of a [[configuration]]",
        ),
        (GOOD + 'queue = "50"\n', 'configuration[0].queue: "50" has no unit'),
        (GOOD + 'queue = ["50ms", "0ms"]\nlabel = "{queue}"\n', 'configuration[0].queue: "0ms" is zero'),
        (GOOD + 'queue = ["10ms", "50ms"]\n', "names two configurations"),
        (GOOD + 'queue = ["10ms", "10000us"]\nlabel = "{queue}"\n', "measures the same as"),
        (GOOD + 'bytes = "1GiB"\n', "configuration[0]: give one of bytes"),
        (GOOD.replace("seconds = 1", ""), "configuration[0]: give one of bytes"),
        (GOOD.replace("seconds = 1", 'bytes = "1G"'), 'configuration[0].bytes: "1G" is not a size'),
        (GOOD.replace("seconds = 1", "seconds = 0"), "configuration[0].seconds: 0 is not a number above 0"),
        (GOOD + "streams = 0\n", "configuration[0].streams: 0 is not a whole number from 1 to 512"),
        (GOOD + "streams = []\n", "configuration[0].streams: an empty list"),
        (GOOD + 'mover = "ftp"\n', 'configuration[0].mover: "ftp" is none of farlink, iperf3, nuttcp'),
        (GOOD + 'congestion = "cubic; reboot"\n', "is not a name as the kernel has them"),
        (GOOD + 'buffer = "64"\n', 'configuration[0].buffer: "64" has no unit'),
        (GOOD + 'block = "1"\n', 'configuration[0].block: "1" has no unit'),
        (GOOD + 'block = "1KiB"\n', 'configuration[0].block: "1KiB" is no block: at least 4KiB and at most'),
        (GOOD + 'block = "65MiB"\n', 'configuration[0].block: "65MiB" is no block'),
        (GOOD + 'block = ["auto", "1MiB"]\n', "measures the same as"),
        (GOOD + 'block = ["64KiB", "1MiB"]\n', "names two configurations: give each its own"),
        (
            GOOD + 'block = "64KiB"\nmover = "iperf3"\n',
            "block: iperf3 takes none, only farlink: leave it out",
        ),
        (GOOD + 'label = "{colour}"\n', "in braces stand {mover}, {congestion}, {streams}, {buffer},"),
        (GOOD + 'label = "{mover[x]}"\n', "in braces stand {mover}, {congestion}"),
        (GOOD + 'label = "{mover.upper}"\n', "in braces stand {mover}, {congestion}"),
        (GOOD + 'label = "{streams:{mover[x]}}"\n', "in braces stand {mover}, {congestion}"),
        (GOOD + "[[configuration]]\nseconds = 1\n", "measures the same as"),
        (GOOD + 'label = "x"\nstreams = [1, 2]\n', "names two configurations"),
        (GOOD + 'mover = "iperf3"\n'.replace("seconds", ""), None),
        (GOOD.replace("seconds = 1", 'bytes = "1MiB"\nmover = "iperf3"'), "stops its clock before the data"),
        (GOOD.replace("seconds = 1", 'seconds = 1.5\nmover = "nuttcp"'), "nuttcp takes whole seconds"),
        (GOOD + 'mover = "nuttcp"\nbuffer = "1000B"\n', "nuttcp takes whole KiB"),
        (
            GOOD + 'rtts = ["7ms"]\n',
            "configuration[0].rtts: 7 ms is none of the plan's rtts, 1 ms: add it there",
        ),
        (GOOD + 'circuit = "10"\n', 'configuration[0].circuit: "10" has no unit'),
        (GOOD + 'circuit = "10gbit"\ncongestion = "cubic"\n', "leave congestion out"),
        (GOOD + 'circuit = "10gbit"\nmover = "iperf3"\n', "iperf3 declares no rate"),
        (GOOD + "rtts = []\n", "configuration[0].rtts: at least one is needed"),
        (GOOD + 'mover = "rsync"\n', "seconds: rsync moves whole files: give bytes"),
        (GOOD + 'mover = "globus-url-copy"\n', "seconds: globus-url-copy moves whole files: give bytes"),
        (FILE + 'mover = "rsync"\nstreams = 2\n', "streams: rsync has one: leave it out"),
        (FILE + 'mover = "rsync"\ncircuit = "1gbit"\n', "circuit: rsync declares no rate"),
        (FILE + 'mover = "rsync"\noptions = "-z"\n', "options: -z is the lab's to give, or changes what is"),
        (FILE + 'mover = "rsync"\noptions = "[x"\n'.replace("[", "'"), "no closing quotation: close it"),
        (FILE + 'mover = "globus-url-copy"\noptions = "-udt"\n', "options: -udt is the lab's to give"),
        (FILE + 'mover = "globus-url-copy"\nstreams = 129\n', "streams: the lab runs globus-url-copy"),
        (FILE + 'options = "-fast"\n', "options: farlink takes none, only globus-url-copy and rsync: leave"),
        (FILE + 'mover = "rsync"\nserver = "x"\n', "server: rsync takes none, only command: leave it out"),
        (FILE + 'mover = "command"\n', "command: it is missing: give the client's command"),
        (FILE + 'command = "x {colour}"\n', "command: {colour} is none of {address}, {port}, {bytes}"),
        (FILE + 'command = "x {bytes!r}"\n', "command: {bytes} is none of"),
        (FILE + 'command = "x {bytes"\n', "command: expected '}' before end of string: write"),
        (FILE + 'command = "{bytes}"\n', "command: it begins with no program"),
        (FILE + 'command = "x"\n', "command: a fixed size needs {bytes} or {source} in it"),
        (GOOD + 'command = "x"\n', "command: a fixed duration needs {seconds} in it"),
        (GOOD + 'command = "x {seconds} {source}"\n', "{source} is a file of a fixed size: give bytes"),
        (FILE + 'command = "x {bytes}"\nstreams = 2\n', "streams: no {streams} in command takes it"),
        (FILE + 'command = "x {bytes}"\nbuffer = "1MiB"\n', "buffer: no {buffer} in command takes it"),
        (FILE + 'command = "x {bytes} {buffer}"\n', "command: {buffer} needs a buffer"),
        (FILE + 'command = "x {bytes} {port}"\n', "command: {port} needs a port"),
        (FILE + 'command = "x {bytes}"\nserver = "y"\n', "server: give port or ready"),
        (FILE + 'command = "x {bytes}"\nserver = "y {source}"\nport = 1\n', "server: {source} is none of"),
        (FILE + 'command = "x {bytes}"\nready = "r"\n', "ready: there is no server"),
        (FILE + 'command = "x {bytes}"\nport = 0\n', "port: 0 is not a whole number from 1 to 65535"),
    ],
)
def test_each_refusal_is_one_line_with_the_mend(text, said):
    if said is None:
        assert parse_plan(text, name="x").configurations[0].mover == "iperf3"
    else:
        assert said in refusal(text)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(PlanError, match="No such file or directory: name a TOML file"):
        read_plan(tmp_path / "none.toml")


@given(st.text())
def test_any_text_is_a_plan_or_a_refusal(text):
    try:
        parse_plan(text, name="x")
    except PlanError as error:
        assert str(error)


def test_the_demonstration_takes_at_most_eight_minutes():
    plan = read_plan(PLANS / "demo.toml")
    runs = schedule(plan)
    assert len(runs) == 63
    assert TimeLeft().of_all(runs) < 480


def test_the_suite_is_every_combination():
    plan = read_plan(PLANS / "suite.toml")
    runs = schedule(plan)
    measured = {
        (
            run.rtt_s,
            run.configuration.mover,
            run.configuration.congestion,
            run.configuration.streams,
            run.configuration.buffer_bytes,
        )
        for run in runs
    }
    assert len(measured) == len(plan.settings) == 7 * 3 * 2 * 2 * 2
    assert len(runs) == 3 * len(measured)


def test_movers_that_are_compared_go_one_after_the_other():
    runs = schedule(read_plan(PLANS / "suite.toml"))
    tasks = [(run.rtt_s, run.configuration.matter() | {"mover": None}) for run in runs]
    movers = [run.configuration.mover for run in runs]
    for first in range(0, len(runs), 3):
        assert tasks[first] == tasks[first + 1] == tasks[first + 2]
        assert sorted(movers[first : first + 3]) == ["farlink", "iperf3", "nuttcp"]
    assert len({tuple(movers[first : first + 3]) for first in range(0, len(runs), 3)}) == 6


def test_a_configuration_may_have_rtts_of_its_own():
    plan = parse_plan(GOOD.replace('"1ms"', '"1ms", "2ms"') + 'rtts = ["2ms"]\n', name="x")
    assert [run.rtt_s for run in schedule(plan)] == [0.002]


def test_blocks_may_be_listed_and_name_their_configurations():
    plan = parse_plan(GOOD + 'label = "{block}"\nblock = ["64KiB", "1MiB", "4MiB"]\n', name="x")
    assert [(each.label, each.block_bytes) for each in plan.configurations] == [
        ("64 KiB", 64 << 10),
        ("1 MiB", None),
        ("4 MiB", 4 << 20),
    ]
    assert len({run.identity for run in schedule(plan)}) == 3
    assert len(PlanSearch(plan, schedule(plan)).search.choices) == 3


def test_a_run_keeps_its_identity_over_the_versions_of_the_lab():
    # As version 0.1.0 wrote it: campaigns that were begun then go on.
    configuration = Configuration(
        label="any", congestion="cubic", streams=2, buffer_bytes=4 << 20, size_bytes=10**9
    )
    assert identity(Connection(), configuration, rtt_s=0.0916, repetition=1) == "eae36e84c733a1f0"


def test_options_make_configurations_that_differ():
    text = FILE + 'mover = "globus-url-copy"\noptions = ["", "-fast"]\nlabel = "{mover} {options}"\n'
    runs = schedule(parse_plan(text, name="x"))
    assert len({run.identity for run in runs}) == 2
    assert sorted(run.configuration.label for run in runs) == [
        "globus-url-copy -fast",
        "globus-url-copy no options",
    ]


def test_sizes_may_be_a_list():
    text = GOOD.replace("seconds = 1", 'bytes = ["1MB", 2000000, "4MiB"]\nlabel = "{amount}"')
    sizes = [each.size_bytes for each in parse_plan(text, name="x").configurations]
    assert sizes == [1_000_000, 2_000_000, 4 << 20]
    assert "names two configurations" in refusal(text.replace("{amount}", "x"))


def test_a_command_is_called_by_its_program():
    text = FILE + 'command = "/opt/bin/mytool {bytes}"\n'
    (configuration,) = parse_plan(text, name="x").configurations
    assert (configuration.mover, configuration.tool) == ("command", "mytool")
    assert configuration.label == "mytool DEFAULT ×1, full buffers"


@pytest.mark.parametrize(
    ("text", "asked", "share"),
    [
        ("1%", 0.01, 0.01),
        ("0.0001", 0.0001, 0.0001),
        ("every:12000", "every:12000", 1 / 12000),
        ("every:1", "every:1", 1.0),
    ],
)
def test_a_loss_is_a_share_or_one_of_a_number(text, asked, share):
    connection = parse_plan(GOOD + f'[connection]\nloss = "{text}"\n', name="x").connection
    assert (connection.loss, connection.loss_share) == (asked, share)


@pytest.mark.parametrize(
    ("text", "asked"),
    [("none", (None, None)), ("3gbit", (3 * 10**9, None)), ("3gbit,on-off:100ms", (3 * 10**9, 0.1))],
)
def test_other_traffic_is_constant_or_comes_and_goes(text, asked):
    connection = parse_plan(GOOD + f'[connection]\nbackground = "{text}"\n', name="x").connection
    assert (connection.background_bps, connection.background_on_off_s) == asked
    others = ("", "3gbit", "3gbit,on-off:100ms", "3gbit,on-off:50ms")
    plans = [
        parse_plan(GOOD + f'[connection]\nbackground = "{other or "none"}"\n', name="x") for other in others
    ]
    assert len({run.identity for plan in plans for run in schedule(plan)}) == len(others)
    assert schedule(plans[0]) == schedule(parse_plan(GOOD, name="x"))


def test_queues_may_be_a_list():
    text = (
        GOOD + 'label = "queue of {queue}"\nqueue = ["5ms", "1MB", "50ms"]\n[[configuration]]\nseconds = 2\n'
    )
    plan = parse_plan(text, name="x")
    *listed, plain = plan.configurations
    assert [each.queue for each in listed] == ["5000000ns", "1000000B", "50000000ns"]
    assert [each.label for each in listed] == ["queue of 5 ms", "queue of 1 MB", "queue of 50 ms"]
    assert plain.queue is None
    assert len({run.identity for run in schedule(plan)}) == 4


def test_the_losses_are_of_every_variant_in_three_minutes():
    plan = read_plan(PLANS / "losses.toml")
    runs = schedule(plan)
    assert {run.configuration.congestion for run in runs} == {"cubic", "htcp", "scalable", "bbr", "circuit"}
    assert all(run.configuration.interval_s == 0.01 for run in runs)
    assert TimeLeft().of_all(runs) < 180


def test_runs_are_interleaved_and_reproducible():
    plan = read_plan(PLANS / "suite.toml")
    runs = schedule(plan)
    assert runs == schedule(plan)
    assert len({run.identity for run in runs}) == len(runs)
    a_repetition = len(runs) // plan.repetitions
    orders = [
        [(run.configuration.label, run.rtt_s) for run in runs[k * a_repetition : (k + 1) * a_repetition]]
        for k in range(plan.repetitions)
    ]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    longest = max(sum(1 for _ in group) for group in _groups([label for label, _ in orders[0]]))
    assert longest < 7


def test_the_time_left_learns_from_what_was_seen():
    runs = schedule(read_plan(PLANS / "demo.toml"))
    left = TimeLeft()
    before = left.of_all(runs)
    for run in runs[:20]:
        left.saw(run, took_s=2 * run.expected_s)
    assert left.of_all(runs) == pytest.approx(2 * before, rel=0.3)


def _groups(labels):
    group = []
    for label in labels:
        if group and group[-1] != label:
            yield group
            group = []
        group.append(label)
    yield group
