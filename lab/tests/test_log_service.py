"""The decision table of a feed: the two published feeds, and traces made to be each case."""

import tracemalloc

import numpy as np
import pytest

from farlink_lab.logs.feed import Feed, Topology, feed_of, read_feed, read_topology
from farlink_lab.logs.service import decide
from farlink_lab.logs.transfer import US, LogError

# Volume a day, peak minute, share of silences beyond a second, hosts: the project's review of March 2012.
CONDUIT = Feed(mean_bps=8 * 60e9 / 86_400, peak_minute_bps=8 * 250e6 / 60, silent_share=0.02)
NEXRAD2 = Feed(mean_bps=8 * 56e9 / 86_400, peak_minute_bps=7.8e6, silent_share=0.0)


def fits(decision):
    return {verdict.service: verdict.fits for verdict in decision.verdicts}


def test_the_published_bursty_feed_needs_multicast():
    decision = decide(CONDUIT, Topology(fan_out=104, hosts=163, senders=57, receivers=141), setup_s=60)
    assert round(CONDUIT.peak_minute_bps / 1e6, 1) == 33.3
    assert round(decision.required_bps / 1e9, 1) == 3.5
    assert fits(decision) == {
        "IP-routed": "poor",
        "static circuit": "poor",
        "dynamic circuit": "no",
        "multicast circuit": "yes",
        "peer-to-peer": "no",
    }
    assert decision.chosen == "multicast circuit"
    assert round(1 / CONDUIT.smoothness, 1) == 6.0


def test_the_published_smooth_feed_could_do_with_static_circuits():
    decision = decide(NEXRAD2, Topology(fan_out=55, hosts=150, senders=75, receivers=114), setup_s=60)
    assert round(decision.required_bps / 1e6) == 429
    assert fits(decision)["static circuit"] == "yes"
    assert fits(decision)["dynamic circuit"] == "no"
    assert decision.chosen == "multicast circuit"
    assert round(1 / NEXRAD2.smoothness, 1) == 1.5


def test_servers_are_counted_where_their_rate_is_known():
    decision = decide(CONDUIT, Topology(fan_out=104), setup_s=60, server_bps=1e9)
    assert decision.servers == 4
    assert decide(NEXRAD2, Topology(fan_out=55), setup_s=60, server_bps=1e9).servers == 1


def test_one_receiver_needs_no_multicast():
    assert fits(decide(NEXRAD2, Topology(fan_out=1), setup_s=60))["multicast circuit"] == "no"


def test_a_feed_with_long_silences_pays_for_dynamic_circuits():
    start = np.arange(20) * 1000 * US
    feed = feed_of(start, start + 100 * US, np.full(20, 10**9))
    assert feed.share_longer(60) == 1.0
    assert fits(decide(feed, Topology(fan_out=1), setup_s=60))["dynamic circuit"] == "yes"
    assert fits(decide(feed, Topology(fan_out=1), setup_s=1000))["dynamic circuit"] == "no"


@pytest.mark.parametrize(
    ("silent", "setup_s", "fits_so", "words"),
    [
        (0.6, 60, "poor", "unknown: 60% of silences are longer than 1 s; a trace would tell"),
        (0.02, 60, "no", "at most 2% of silences are longer than the setup of 60 s"),
        (0.6, 0.05, "yes", "at least 60% of silences are longer than the setup of 50 ms: it pays"),
        (0.02, 0.05, "poor", "unknown: 2% of silences are longer than 1 s; a trace would tell"),
        (1.0, 1, "yes", "100% of silences are longer than the setup of 1 s: it pays"),
        (0.02, 1, "no", "2% of silences are longer than the setup of 1 s"),
    ],
)
def test_silences_beyond_a_second_bound_those_beyond_another_setup_and_say_no_more(
    silent, setup_s, fits_so, words
):
    feed = Feed(mean_bps=5e6, peak_minute_bps=33e6, silent_share=silent)
    dynamic = decide(feed, Topology(fan_out=1), setup_s=setup_s).verdicts[2]
    assert dynamic.fits == fits_so
    assert dynamic.reason.startswith(words)


def test_peers_help_where_several_have_a_product():
    topology = Topology(fan_out=100)
    assert fits(decide(CONDUIT, topology, setup_s=60, held_by_peers=9))["peer-to-peer"] == "poor"


def test_a_trace_is_measured_as_defined():
    start = np.array([0, 5, 30, 100]) * US
    end = np.array([10, 8, 31, 101]) * US
    feed = feed_of(start, end, np.array([100, 200, 300, 1000]))
    assert feed.silences_s.tolist() == [0, 20, 69]
    assert np.isclose(feed.mean_bps, 8 * 1600 / 101)
    assert np.isclose(feed.peak_minute_bps, 8 * 1000 / 60)
    assert np.isclose(feed.silent_share, 2 / 3)


def test_a_trace_and_a_topology_are_read_from_files(tmp_path):
    (tmp_path / "trace.csv").write_text("time,bytes\n2015-06-15T00:00:00Z,100\n2015-06-15T00:02:00.5Z,300\n")
    (tmp_path / "hosts.csv").write_text("sender,receiver\nucar,a\nucar,b\na,c\nucar,b\n")
    feed = read_feed(tmp_path / "trace.csv")
    assert (feed.products, feed.silences_s.tolist()) == (2, [120.5])
    topology = read_topology(tmp_path / "hosts.csv")
    assert (topology.fan_out, topology.hosts, topology.senders, topology.receivers) == (2, 4, 2, 3)


def test_one_wrong_clock_costs_no_memory(tmp_path):
    (tmp_path / "trace.csv").write_text("0,5\n30,7\n9e10,5\n")
    tracemalloc.start()
    feed = read_feed(tmp_path / "trace.csv")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.isclose(feed.peak_minute_bps, 8 * 12 / 60)
    assert most < 1e6


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time,bytes\n", "two products"),
        ("1,1\nx,1\n", "line 2"),
        ("1,1\n2,-1\n", "line 2"),
        ("5,1,1\n9,8,1\n", "line 1"),
        ("1,1\n1,1\n", "one moment"),
        ("1,0\n2,0\n", "no product has a byte"),
        ("1,1\n2,9007199254740993\n", "line 2: more bytes than any product has: at most 9007199254740992"),
        ("1,1\n2,99999999999999999999\n", "line 2: more bytes"),
    ],
)
def test_a_trace_that_is_none_is_refused_with_its_line(tmp_path, text, words):
    (tmp_path / "trace.csv").write_text(text)
    with pytest.raises(LogError, match=words):
        read_feed(tmp_path / "trace.csv")


def test_a_topology_that_is_none_is_refused_with_its_line(tmp_path):
    (tmp_path / "hosts.csv").write_text("a,b\na\n")
    with pytest.raises(LogError, match="line 2"):
        read_topology(tmp_path / "hosts.csv")
