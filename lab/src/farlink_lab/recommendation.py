"""Advice as one object of JSON, and as lines for a person: what to take, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from farlink_lab.expectation import loss_limit_bps, lost_s, window_binds_s
from farlink_lab.quantity import show_rate, show_size, show_time

if TYPE_CHECKING:
    from farlink_lab.advice import Advice, Prediction

# A limit is named where it takes more than this of the capacity.
WORTH_NAMING = 0.02
ASSUMPTION = (
    "the interval assumes that the prediction errs at this RTT as it errs at the measured ones "
    "near it when those are left out"
)
OWN_ASSUMPTION = (
    "too few RTTs show how the prediction errs: the interval is what the Gaussian process claims of itself"
)


def recommendation(advice: Advice) -> dict[str, Any]:
    """The advice as JSON would have it."""
    runner_up, measured = advice.runner_up, advice.best_measured
    return {
        "question": {
            "rtt_s": advice.rtt_s,
            "rate_bps": advice.ground.asked.rate_bps,
            "loss": advice.ground.asked.loss,
            "mode": advice.task.mode,
            "amount": advice.task.amount,
        },
        "advice": _prediction(advice, advice.best),
        "runner_up": None if runner_up is None else _prediction(advice, runner_up),
        "best_measured": None if measured is None else _prediction(advice, measured),
        "ranking": [
            {
                "configuration": one.choice.name,
                "throughput_bps": one.throughput_bps,
                "extrapolated": one.extrapolated,
            }
            for one in advice.ranking
        ],
        "why": why(advice),
        "claim": advice.claim if _has_interval(advice) else None,
        "errors": advice.errors,
        "assumption": _assumption(advice) if _has_interval(advice) else None,
        "extrapolated": advice.extrapolated,
        "notes": list(advice.notes),
    }


def told(advice: Advice) -> list[str]:
    """The advice in lines, for a person."""
    best, runner_up, measured = advice.best, advice.runner_up, advice.best_measured
    asked = advice.ground.asked
    loss = f", loss {asked.loss:g}" if asked.loss else ""
    where = f"{advice.task.shown} at {show_time(advice.rtt_s)} over {show_rate(asked.rate_bps)}{loss}"
    lines = [
        f"{where}: {best.choice.name}",
        f"  predicted: {_rates(advice, best)}{_takes(advice, best)}",
    ]
    if best.choice.tool == "farlink":
        memory = f"farlink memory HOST {advice.task.flags}".rstrip()
        command = "farlink copy FROM TO" if best.choice.kind == "file" else memory
        lines.append(f"  {command} {best.choice.flags}".rstrip())
    if runner_up is not None:
        lines.append(f"  runner-up: {runner_up.choice.name}, {_rates(advice, runner_up)}")
    if measured is not None and measured not in (best, runner_up):
        lines.append(
            f"  of those measured on both sides of it: {measured.choice.name}, {_rates(advice, measured)}"
        )
    lines += [f"  why: {reason}" for reason in why(advice)]
    if _has_interval(advice):
        lines.append(f"  {_assumption(advice)}")
    return [*lines, *(f"  note: {note}" for note in advice.notes)]


def why(advice: Advice) -> list[str]:
    """Reasons for the best, and against the runner-up, the strongest first."""
    best, runner_up = advice.best, advice.runner_up
    reasons = [f"{best.choice.name}: {reason}" for reason in _limits(advice, best)]
    reasons.append(f"{best.choice.name}: {_measured(best)}")
    if runner_up is not None:
        less = 1 - runner_up.throughput_bps / best.throughput_bps
        against = [*_limits(advice, runner_up), _measured(runner_up)]
        reasons.append(f"{runner_up.choice.name} should reach {100 * less:.1f}% less: {against[0]}")
        if best.low_bps is not None and runner_up.throughput_bps >= best.low_bps:
            reasons.append("the two are within each other's reach: the next transfer may turn them round")
    bound = _bound_by_windows(advice)
    return [*reasons, bound] if bound else reasons


def _limits(advice: Advice, one: Prediction) -> list[str]:
    wire, choice = advice.ground.asked, one.choice
    reasons = []
    binds = window_binds_s(choice, wire=wire)
    if binds is not None and binds < advice.rtt_s:
        allowed = wire.capacity_bps * binds / advice.rtt_s
        reasons.append(
            f"the window limit binds above {show_time(_digits(binds))}; at {show_time(advice.rtt_s)} it "
            f"leaves {show_rate(allowed)}"
        )
    losses = loss_limit_bps(choice, advice.rtt_s, wire=wire)
    if losses is not None and losses < (1 - WORTH_NAMING) * wire.capacity_bps:
        reasons.append(f"losses leave {show_rate(losses)}")
    lost = lost_s(choice, advice.rtt_s, wire=wire)
    takes = 8 * advice.task.amount / one.throughput_bps if advice.task.mode == "size" else advice.task.amount
    if lost > WORTH_NAMING * takes:
        reasons.append(f"slow start costs {show_time(_digits(lost))} of {show_time(_digits(takes))}")
    if choice.declared_bps is not None:
        reasons.append(f"it holds the declared {show_rate(choice.declared_bps)} and needs no slow start")
    return reasons


def _measured(one: Prediction) -> str:
    off, model = one.residual, show_rate(one.model_bps)
    runs = "runs elsewhere" if one.extrapolated else "the runs"
    if one.late_s:
        runs += f" ({'all' if one.late_s == one.measured_s else 'some'} late)"
    if abs(off) < WORTH_NAMING:
        return f"{runs} met the model, which says {model}"
    return (
        f"{runs} were {100 * abs(off):.1f}% {'above' if off > 0 else 'below'} the model, which says {model}"
    )


def _bound_by_windows(advice: Advice) -> str:
    """The fixed buffers that lose to the best for their windows, in one sentence."""
    if advice.best.choice.buffer_bytes is not None:
        return ""
    bound = {
        (one.choice.buffer_bytes, one.choice.streams): binds
        for one in advice.ranking[2:]
        if (binds := window_binds_s(one.choice, wire=advice.ground.asked)) is not None
        and binds < advice.rtt_s
    }
    if not bound:
        return ""
    said = [
        f"{show_size(buffer or 0)} ×{streams} above {show_time(_digits(binds))}"
        for (buffer, streams), binds in sorted(bound.items(), key=lambda item: item[1])
    ]
    return f"the window limit binds with {', '.join(said)}"


def _rates(advice: Advice, one: Prediction) -> str:
    if one.low_bps is None or one.high_bps is None:
        # Where the connection is another, the notes say so.
        where = f" (extrapolated: it was measured {one.measured_shown})"
        where = "" if advice.ground.notes or not one.extrapolated else where
        return f"{show_rate(one.throughput_bps)}, with no interval{where}"
    return (
        f"{show_rate(one.throughput_bps)} ({100 * advice.claim:.0f}%: {show_rate(one.low_bps)} to "
        f"{show_rate(one.high_bps)})"
    )


def _takes(advice: Advice, one: Prediction) -> str:
    if advice.task.mode != "size":
        return ""
    return f", {show_time(_digits(8 * advice.task.amount / one.throughput_bps))}"


def _has_interval(advice: Advice) -> bool:
    """Whether any of those that are told has one."""
    named = (advice.best, advice.runner_up, advice.best_measured)
    return any(one is not None and one.low_bps is not None for one in named)


def _assumption(advice: Advice) -> str:
    return f"{ASSUMPTION} ({advice.errors} errors)" if advice.errors else OWN_ASSUMPTION


def _digits(value: float) -> float:
    """To three digits: more are not known."""
    return float(f"{value:.3g}")


def _prediction(advice: Advice, one: Prediction) -> dict[str, Any]:
    choice, bounds = one.choice, one.bounds
    return {
        "configuration": choice.name,
        "tool": choice.tool,
        "kind": choice.kind,
        "congestion": choice.congestion,
        "streams": choice.streams,
        "buffer_bytes": choice.buffer_bytes,
        "block_bytes": choice.block_bytes,
        "declared_bps": choice.declared_bps,
        "protection": choice.protection,
        "options": choice.options,
        "template": choice.template,
        "flags": choice.flags,
        "throughput_bps": one.throughput_bps,
        "low_bps": one.low_bps,
        "high_bps": one.high_bps,
        "model_bps": one.model_bps,
        "residual": one.residual,
        "extrapolated": one.extrapolated,
        "measured_rtt_s": list(one.measured_s),
        "late_rtt_s": list(one.late_s),
        "window_binds_s": window_binds_s(choice, wire=advice.ground.asked),
        "bounds": None
        if bounds is None
        else {"low_bps": bounds.low_bps, "high_bps": bounds.high_bps, "claim": bounds.claim},
    }
