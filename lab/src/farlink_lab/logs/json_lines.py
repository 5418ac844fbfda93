"""JSON Lines: Farlink's records, what FTS, Rucio and XRootD report of transfers, and others by a mapping."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from farlink_lab.logs import fields
from farlink_lab.logs.mapping import Column, Mapping
from farlink_lab.logs.transfer import Rows

if TYPE_CHECKING:
    from farlink_lab.logs.block import Block
    from farlink_lab.logs.transfer import Parsed


def is_json(line: bytes) -> bool:
    """Whether a line may be an object of JSON."""
    return line.lstrip().startswith(b"{")


def parse(block: Block, mapping: Mapping | None) -> Parsed:
    """The transfers of a block; without a mapping each line is read as the shape that it has."""
    rows = Rows()
    long = dict(block.too_long)
    for at in range(block.lines):
        line = block.line(at)
        if at in long or not line.strip():
            continue
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            rows.refuse(at, "broken", f"not JSON: {str(error) or 'nested too deeply'}")
            continue
        if not isinstance(data, dict):
            rows.refuse(at, "broken", "not an object of JSON")
            continue
        shape = mapping or _shape(data)
        if shape is None:
            rows.refuse(at, "no-transfer", f"its keys are {', '.join(map(str, data))[:100]}")
            continue
        flat = _upright(data, shape)
        fields.add(rows, at, shape, lambda name, flat=flat: _value(flat, name))  # type: ignore[misc]
    return rows.parsed()


def _value(data: dict[str, Any], name: str) -> Any:
    """A field, which dots may lead to."""
    if name in data:
        return data[name]
    value: Any = data
    for part in name.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def _shape(data: dict[str, Any]) -> Mapping | None:
    """Which of the shapes that are known a line has."""
    if "schema" in data and "kind" in data and "outcome" in data:
        return FARLINK
    if "tr_timestamp_start" in data and "tr_timestamp_complete" in data:
        return FTS
    payload = data.get("payload")
    if data.get("event_type") == "transfer-done" and isinstance(payload, dict):
        return RUCIO
    if "file_lfn" in data and "read_bytes_at_close" in data:
        return XROOTD_CLOSED
    if "server_hostname" in data and "operation_time" in data and "read" in data:
        return XROOTD
    return None


def _upright(data: dict[str, Any], shape: Mapping) -> dict[str, Any]:
    """The object with what its shape leaves to be worked out."""
    if shape is FTS:
        size = data.get("file_size", data.get("f_size"))
        return {**data, "size": size, "streams": data.get("n_streams", data.get("nstreams"))}
    if shape is RUCIO:
        payload = data["payload"]
        return {**data, "size": payload.get("bytes", payload.get("file-size"))}
    if shape in (XROOTD, XROOTD_CLOSED):
        # A file that was read left the server, one that was written came to it.
        ours = shape is XROOTD
        read = data.get("read" if ours else "read_bytes_at_close") or 0
        written = data.get("write" if ours else "write_bytes_at_close") or 0
        server = data.get("server_hostname" if ours else "server_host")
        client = data.get("host" if ours else "client_host")
        numbers = isinstance(read, int | float) and isinstance(written, int | float)
        outward = not numbers or read >= written
        return {
            **data,
            "size": read if outward else written,
            "source": server if outward else client,
            "destination": client if outward else server,
        }
    return data


def _columns(**names: str) -> dict[str, Column]:
    return {name: Column(name=column) for name, column in names.items()}


# docs/records.md
FARLINK = Mapping(
    columns=_columns(
        start="started", duration="duration_s", bytes="bytes", source="source", destination="destination",
        user="user", streams="streams", stripes="stripes", block_bytes="block_bytes",
        buffer_bytes="buffer_bytes", retransmits="retransmits", rtt_s="rtt_s", server="source",
        sender_cpu_s="cpu_s.sender", receiver_cpu_s="cpu_s.receiver", read_s="disk_s.read",
        write_s="disk_s.write",
    ),
    only={"outcome": ("ok",)},
)  # fmt: skip
# "transfer complete" messages of FTS3 monitoring: milliseconds, as numbers or texts.
FTS = Mapping(
    columns=_columns(
        start="tr_timestamp_start", end="tr_timestamp_complete", bytes="size", source="src_hostname",
        destination="dst_hostname", server="src_hostname", user="user_dn", file="src_url",
        streams="streams", block_bytes="block_size", buffer_bytes="tcp_buf_size",
    ),
    only={"t_final_transfer_state": ("Ok", "OK", "ok")},
)  # fmt: skip
# Rucio's events: hosts are storage elements, times are text in UTC.
RUCIO = Mapping(
    columns=_columns(
        start="payload.started_at", end="payload.transferred_at", bytes="size", source="payload.src-rse",
        destination="payload.dst-rse", server="payload.src-rse", user="payload.account", file="payload.name",
    ),
    only={},
)  # fmt: skip
# What collectors make of XRootD's file stream, in both spellings that are about.
XROOTD = Mapping(
    columns=_columns(
        start="start_time", end="end_time", bytes="size", source="source", destination="destination",
        server="server_hostname", user="user", file="filename",
    ),
    only={},
)  # fmt: skip
XROOTD_CLOSED = Mapping(
    columns=_columns(
        start="start_time", end="end_time", bytes="size", source="source", destination="destination",
        server="server_host", user="user_dn", file="file_lfn",
    ),
    only={},
)  # fmt: skip
