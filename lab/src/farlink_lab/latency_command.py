"""`farlink lab latency`: a group's rates in, the model's account out."""

from __future__ import annotations

import json
import math
from typing import Annotated

import typer

from farlink_lab.error import LabError
from farlink_lab.quantity import parse_rate, parse_rtt, parse_share, parse_size
from farlink_lab.terminal import option, say, whole

# More than any group has: the model's sums stay short.
MOST_RECEIVERS = 1_000_000


def latency(
    *,
    size: Annotated[str, typer.Option("--size", metavar="SIZE", help="Of the product, as in 125MB.")],
    receivers: Annotated[
        int,
        typer.Option(
            "--receivers",
            metavar="N",
            parser=whole("--receivers", least=1, most=MOST_RECEIVERS, example=50),
            help="How many get it.",
        ),
    ],
    sender_rate: Annotated[
        str, typer.Option("--sender-rate", metavar="RATE", help="What one server can send.")
    ],
    sender_link: Annotated[
        str | None, typer.Option("--sender-link", metavar="RATE", help="The sender's access link.")
    ] = None,
    receiver_rate: Annotated[
        str | None, typer.Option("--receiver-rate", metavar="RATE", help="What one receiver can take.")
    ] = None,
    receiver_link: Annotated[
        str | None, typer.Option("--receiver-link", metavar="RATE", help="A receiver's access link.")
    ] = None,
    loss: Annotated[
        str | None, typer.Option("--loss", metavar="SHARE", help="Of packets, at each receiver.")
    ] = None,
    rtt: Annotated[
        str | None, typer.Option("--rtt", metavar="TIME", help="Where repairs wait for the first pass.")
    ] = None,
    repair_rate: Annotated[
        str | None,
        typer.Option(
            "--repair-rate", metavar="RATE", help="Of all repairs by unicast; the multicast's otherwise."
        ),
    ] = None,
    headers: Annotated[
        str, typer.Option("--headers", metavar="SHARE", help="Bytes of headers to a byte of content.")
    ] = "0%",
    as_json: Annotated[bool, typer.Option("--json", help="Print one object of JSON.")] = False,
) -> None:
    """Say how long a product takes to all receivers, by unicast and by multicast: the model."""
    from farlink_lab.latency import MOST_LOSS, Group  # noqa: PLC0415
    from farlink_lab.latency_account import account, told  # noqa: PLC0415
    from farlink_lab.latency_account import as_json as members  # noqa: PLC0415

    def rate(name: str, text: str | None) -> float:
        return math.inf if text is None else option(name, text, parse_rate)

    group = Group(
        receivers=receivers,
        sender_bps=rate("--sender-rate", sender_rate),
        sender_link_bps=rate("--sender-link", sender_link),
        receiver_bps=rate("--receiver-rate", receiver_rate),
        receiver_link_bps=rate("--receiver-link", receiver_link),
    )
    if repair_rate is not None and loss is None:
        raise LabError(
            "--repair-rate is of repairs, and nothing is lost: name --loss, as in 1%, or leave it out"
        )
    share = None if loss is None else option("--loss", loss, parse_share)
    if share == 1:
        raise LabError(f'--loss: "{loss}" lets nothing arrive: less than 100%, as in 1%')
    if share is not None and share > MOST_LOSS:
        raise LabError(f'--loss: "{loss}" lets next to nothing arrive: at most {MOST_LOSS:.1%}, as in 1%')
    stated = account(
        group,
        size_bytes=option("--size", size, parse_size),
        overhead=option("--headers", headers, parse_share),
        loss=share,
        rtt_s=None if rtt is None else option("--rtt", rtt, parse_rtt),
        repair_bps=None if repair_rate is None else rate("--repair-rate", repair_rate),
    )
    if as_json:
        say(json.dumps(members(stated), allow_nan=False, indent=1))
    else:
        say("\n".join(told(stated)))
