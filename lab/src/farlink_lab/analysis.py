"""Everything that `farlink lab analyse` tells: as one object of JSON, and as lines for a person.

Keys are the symbols of the studies where there is one (`tau_T`, `C_U`, `T_R`, `theta_S`, …), in seconds and
bit/s; docs/analyse.md has them all. What cannot be told is `null`, with the `reason` beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from farlink_lab import model, words
from farlink_lab.findings import Refusal
from farlink_lab.prediction import loss_counts, why_unmodelled
from farlink_lab.quantity import show_rate, show_time
from farlink_lab.utilization import READING

if TYPE_CHECKING:
    from farlink_lab.dynamics import Dynamics
    from farlink_lab.findings import Findings
    from farlink_lab.profile import Profile
    from farlink_lab.regimes import Regimes

NO_COST = "no run knows the CPU seconds of both its ends"
QUANTILES = (0.05, 0.25, 0.75, 0.95)
Object = dict[str, Any]
Array = NDArray[np.float64]


def analysis(findings: Findings) -> Object:
    """The findings as JSON would have them: finite numbers, texts, lists and objects."""
    left = findings.left_out
    return {
        "configurations": [_configuration(findings, profile) for profile in findings.profiles],
        "left_out": {
            "overrun": left.overrun,
            "failed": left.failed,
            "interrupted": left.interrupted,
            "limited": left.limited,
            "incomplete": left.incomplete,
            "repeated": left.repeated,
        },
        "broken_lines": [str(line) for line in findings.broken],
        "C_U_C_CC_UCC": READING,
    }


def told(findings: Findings) -> list[str]:
    """The same in lines, for a person: what was found of each configuration, or why not."""
    lines = [words.scope(findings)]
    for profile in findings.profiles:
        lines += ["", f"{profile.name} ({profile.mode})", *_lines(findings, profile)]
    left = words.left_out_sentence(findings.left_out)
    return [*lines, "", READING, *([left] if left else [])]


def _configuration(findings: Findings, profile: Profile) -> Object:
    key = profile.key
    return {
        "configuration": profile.label,
        "mode": profile.mode,
        "amount": profile.amount,
        "tool": profile.tool,
        "congestion": profile.congestion,
        "congestion_chosen": profile.congestion_chosen,
        "streams": profile.streams,
        "streams_chosen": profile.streams_chosen,
        "buffer_bytes": profile.buffer_bytes,
        "loss": profile.loss,
        "C": profile.capacity_bps,
        "runs": profile.runs,
        "late_runs": profile.late_runs,
        "above_capacity": profile.above_capacity or None,
        "profile": _profile(findings, profile),
        "regimes": _regimes(findings.regimes[key], profile),
        "utilization": _utilization(findings, profile),
        "phases": [
            {
                "tau": at.rtt_s,
                "runs": at.runs,
                "T_R": at.ramp_up_s,
                "theta_R": at.ramp_up_bps,
                "theta_S": at.sustained_bps,
                "f_R": at.ramp_up_share,
                "rebuilt_error": at.rebuilt_error,
                "foretold_error": at.foretold_error,
                "spread_error": at.spread_error,
                "reason": words.above_capacity(at, profile) or None,
            }
            for at in findings.phases_at[key]
        ],
        "phases_reason": findings.no_phases(profile) or None,
        "model": _model(findings, profile),
        "cpu_s_per_GB": _cost(findings, profile),
        "dynamics": [_dynamics(rtt, findings.dynamics[key, rtt]) for rtt in profile.rtt_s.tolist()],
        "confidence": _confidence(findings, profile),
    }


def _profile(findings: Findings, profile: Profile) -> list[Object]:
    band = findings.bands.get(profile.key)
    quantiles = profile.quantiles_bps(QUANTILES)
    return [
        {
            "tau": float(rtt),
            "runs": len(profile.throughput_bps[index]),
            "streams": float(profile.streams_median[index]) if profile.streams_chosen else profile.streams,
            "congestion": profile.congestion_at(float(rtt)),
            "late": bool(profile.late[index]),
            "mean": float(profile.mean_bps[index]),
            "median": float(profile.median_bps[index]),
            "quantiles": {f"{share:g}": float(quantiles[row, index]) for row, share in enumerate(QUANTILES)},
            "mean_95": None if band is None else [float(value) for value in band[:, index]],
            "reason": findings.no_band(profile) if band is None else None,
        }
        for index, rtt in enumerate(profile.rtt_s)
    ]


def _regimes(found: Regimes | Refusal, profile: Profile) -> Object:
    if isinstance(found, Refusal):
        return {"regime": None, "judged": False, "tau_T": None, "tau_T_95": None, "reason": found.reason}
    fitted = found.sigmoid
    return {
        "regime": found.regime,
        "judged": found.shape.judged,
        "tau_T": None if fitted is None else fitted.transition_s,
        "tau_T_95": None if found.transition_s is None else list(found.transition_s),
        "dual_sigmoid": None
        if fitted is None
        else {
            "a_1": fitted.concave_per_s,
            "a_2": fitted.convex_per_s,
            "theta_0": fitted.first_bps,
            "theta_T": fitted.transition_bps,
            "theta_inf": fitted.last_bps,
        },
        "monotone": [
            {"tau": float(rtt), "Theta": float(value)}
            for rtt, value in zip(profile.rtt_s, found.monotone_bps, strict=True)
        ],
        "regions": [
            {
                "bend": region.bend,
                "first": region.first_s,
                "last": region.last_s,
                "points": region.points,
                "sure": region.sure,
            }
            for region in found.shape.regions
        ],
        "reason": "; ".join(filter(None, (found.reason, profile.above_capacity))) or None,
    }


def _utilization(findings: Findings, profile: Profile) -> Object:
    found = findings.utilizations[profile.key]
    if isinstance(found, Refusal):
        return {"C_U": None, "C_CC": None, "UCC": None, "reason": found.reason}
    return {
        "C_U": found.under_utilization,
        "C_CC": found.convexity,
        "UCC": found.coefficient,
        "tau_min": found.first_s,
        "tau_max": found.last_s,
        "reason": None,
    }


def _model(findings: Findings, profile: Profile) -> Object:
    prediction = findings.predictions.get(profile.key)
    if prediction is None or profile.capacity_bps is None or profile.mtu is None:
        reason = why_unmodelled(profile)
        return {
            "at": [],
            "inflection": None,
            "inflection_reason": reason,
            "counts_loss": loss_counts(profile),
            "reason": reason,
        }
    rows = zip(
        profile.rtt_s,
        prediction.at_rtts_bps,
        prediction.residual,
        prediction.ramp_up_s,
        prediction.lost_s,
        strict=True,
    )
    inflection, why_none = _inflection(profile, profile.capacity_bps, profile.mtu)
    return {
        "at": [
            {"tau": float(rtt), "Theta": float(rate), "residual": float(off), "T_R": float(up), "x": float(x)}
            for rtt, rate, off, up, x in rows
        ],
        "inflection": inflection,
        "inflection_reason": why_none,
        "counts_loss": loss_counts(profile),
        "reason": None,
    }


def _inflection(profile: Profile, capacity_bps: float, mtu: int) -> tuple[float | None, str | None]:
    """Where the model of a fixed size turns convex, seconds, or why nothing says so."""
    if profile.mode != "size":
        return None, "only a fixed size has a formula for it"
    if profile.declared_bps is not None:
        return None, "a declared rate is held: there is no slow start, and the limit is convex throughout"
    if not profile.full_buffers:
        return None, "the windows' limit has no inflection of slow start"
    if profile.streams_chosen:
        return None, "the path decided how many streams there were, and the formula has one number of them"
    if loss_counts(profile):
        return None, "losses limit it, which the formula leaves out"
    try:
        at = model.inflection_rtt_s(
            capacity_bps=capacity_bps,
            size_bytes=profile.amount,
            streams=profile.streams or 1,
            window_bytes=model.initial_window_bytes(mtu=mtu),
            arrival=True,
        )
    except model.ModelError as error:
        return None, str(error)
    return at, None


def _cost(findings: Findings, profile: Profile) -> Object:
    found = findings.costs.get(profile.key)
    if found is None:
        return {"sender": None, "receiver": None, "both": None, "runs": 0, "reason": NO_COST}
    return {
        "sender": found.sender,
        "receiver": found.receiver,
        "both": found.both,
        "runs": found.runs,
        "reason": None,
    }


def _dynamics(rtt_s: float, found: Dynamics | Refusal) -> Object:
    if isinstance(found, Refusal):
        return {"tau": rtt_s, "lyapunov": None, "reason": found.reason}
    return {
        "tau": rtt_s,
        "pairs": len(found.current),
        "lyapunov": found.lyapunov,
        "foretold": found.foretold,
        "scatter": found.scatter if np.isfinite(found.scatter) else None,
        "neighbours": found.neighbours,
        "reason": found.reason or None,
    }


def _confidence(findings: Findings, profile: Profile) -> Object:
    found = findings.intervals[profile.key]
    late = profile.rtt_s[profile.late].tolist()
    if isinstance(found, Refusal):
        return {"between": [], "without_late": late, "reason": found.reason}
    return {
        "between": [
            {
                "from": gap.from_s,
                "to": gap.to_s,
                "low": gap.low_bps,
                "high": gap.high_bps,
                "claim": gap.claim,
            }
            for gap in found
        ],
        "without_late": late,
        "reason": profile.above_capacity or None,
    }


def _lines(findings: Findings, profile: Profile) -> list[str]:
    key = profile.key
    lines = _profile_lines(findings, profile)
    if profile.above_capacity:
        lines.append(f"  above the capacity: {profile.above_capacity}")
    found = findings.regimes[key]
    lines.append(f"  regimes: {words.regime_clause(found)}")
    if not isinstance(found, Refusal):
        lines += _regime_lines(found, profile)
    lines.append(f"  utilization: {words.utilization_clause(findings.utilizations[key], profile.late)}")
    lines += [
        f"  phases at {show_time(at.rtt_s)}{words.late_at(profile, at.rtt_s)}: "
        f"T_R {show_time(_digits(at.ramp_up_s))}, theta_R {show_rate(at.ramp_up_bps)}, "
        f"theta_S {show_rate(at.sustained_bps)}, f_R {at.ramp_up_share:.3f}, "
        f"rebuilt within {100 * at.rebuilt_error:.2f}%{words.foretold_clause(at, profile)}"
        for at in findings.phases_at[key]
    ]
    if untold := findings.no_phases(profile):
        lines.append(f"  phases: not told: {untold}")
    lines += [*_model_lines(findings, profile), _cost_line(findings, profile)]
    lines += [
        f"  dynamics at {show_time(rtt)}{words.late_at(profile, rtt)}: "
        f"{words.dynamics_clause(map_)}{_foretold(map_)}"
        for rtt in profile.rtt_s.tolist()
        for map_ in [findings.dynamics[key, rtt]]
    ]
    gaps = findings.intervals[key]
    if isinstance(gaps, Refusal):
        return [*lines, f"  next transfer between the RTTs: {gaps.reason}"]
    return [
        *lines,
        *(
            f"  next transfer between {show_time(gap.from_s)} and {show_time(gap.to_s)}: "
            f"{show_rate(gap.low_bps)} to {show_rate(gap.high_bps)} (at least {int(100 * gap.claim)}%)"
            f"{', without the late RTTs' if profile.late.any() else ''}"
            for gap in gaps
        ),
    ]


def _foretold(found: Dynamics | Refusal) -> str:
    if isinstance(found, Refusal):
        return ""
    return f"; {100 * found.foretold:.0f}% of the variance foretold from {found.neighbours} neighbours"


def _profile_lines(findings: Findings, profile: Profile) -> list[str]:
    band, quantiles = findings.bands.get(profile.key), profile.quantiles_bps(QUANTILES)
    rows = zip(profile.rtt_s, profile.throughput_bps, profile.mean_bps, profile.median_bps, strict=True)
    lines = [
        f"  {show_time(rtt):>8}  mean {show_rate(mean)}"
        f"{'' if band is None else f' (95%: {show_rate(band[0, index])} to {show_rate(band[1, index])})'}, "
        f"median {show_rate(median)}{_quantiles(quantiles[:, index]) if len(runs) > 1 else ''}, "
        f"{_decided(profile, index)}runs {len(runs)}{words.late_mark(profile, index)}"
        for index, (rtt, runs, mean, median) in enumerate(rows)
    ]
    if band is None:
        lines.append(f"  no band of the mean: {findings.no_band(profile)}")
    return lines


def _decided(profile: Profile, index: int) -> str:
    """A part of a line, where the path decided."""
    control = profile.congestion_usual[index] if profile.congestion_chosen else None
    said = f"{control}, " if control is not None else ""
    return said + (f"streams {profile.streams_median[index]:g}, " if profile.streams_chosen else "")


def _quantiles(rates_bps: Array) -> str:
    """A part of a line; one run has none but itself."""
    told = (f"{share:.0%} {show_rate(rate)}" for share, rate in zip(QUANTILES, rates_bps, strict=True))
    return f", quantiles {', '.join(told)}"


def _regime_lines(found: Regimes, profile: Profile) -> list[str]:
    monotone = ", ".join(
        f"{show_rate(rate)} at {show_time(rtt)}"
        for rtt, rate in zip(profile.rtt_s, found.monotone_bps, strict=True)
    )
    lines = [f"  regions: {words.shape_clause(found.shape)}", f"  monotone regression: {monotone}"]
    fitted = found.sigmoid
    if fitted is not None:
        lines.insert(
            1,
            f"  dual sigmoid: theta_0 {show_rate(fitted.first_bps)}, theta_T "
            f"{show_rate(fitted.transition_bps)}, theta_inf {show_rate(fitted.last_bps)}, "
            f"a_1 {fitted.concave_per_s:.3g}/s, a_2 {fitted.convex_per_s:.3g}/s",
        )
    return lines


def _model_lines(findings: Findings, profile: Profile) -> list[str]:
    prediction = findings.predictions.get(profile.key)
    if prediction is None or profile.capacity_bps is None or profile.mtu is None:
        return [f"  against the model: not told: {why_unmodelled(profile)}"]
    residuals = ", ".join(
        f"{100 * off:+.1f}% at {show_time(rtt)}{words.late_mark(profile, index)}"
        for index, (rtt, off) in enumerate(zip(profile.rtt_s, prediction.residual, strict=True))
    )
    rows = zip(profile.rtt_s, prediction.at_rtts_bps, prediction.ramp_up_s, prediction.lost_s, strict=True)
    at, why_none = _inflection(profile, profile.capacity_bps, profile.mtu)
    inflection = f"at {show_time(_digits(at))}" if at is not None else f"not told: {why_none}"
    return [
        f"  against the model: {residuals}",
        *(
            f"  model at {show_time(rtt)}: {show_rate(rate)}, T_R {show_time(_digits(up))} "
            f"(τ/2 more to arrive), x {show_time(_digits(lost))}"
            for rtt, rate, up, lost in rows
        ),
        f"  model's inflection: {inflection}{'; it counts losses' if loss_counts(profile) else ''}",
    ]


def _cost_line(findings: Findings, profile: Profile) -> str:
    found = findings.costs.get(profile.key)
    if found is None:
        return f"  CPU: not told: {NO_COST}"
    runs = f"{found.runs} run{'' if found.runs == 1 else 's'}"
    return (
        f"  CPU: sender {found.sender:.3g}, receiver {found.receiver:.3g}, both {found.both:.3g} s/GB "
        f"(medians of {runs})"
    )


def _digits(value: float) -> float:
    """To three digits: more are not known."""
    return float(f"{value:.3g}")
