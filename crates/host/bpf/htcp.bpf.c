/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * H-TCP (D. Leith, R. Shorten, "H-TCP: TCP for high-speed and long-distance networks", PFLDnet 2004), as Linux's
 * net/ipv4/tcp_htcp.c computes it, so that the name means the same whoever provides it.
 *
 * Published: with d the seconds since the last loss, the window grows by a segment a round trip for the first second and
 * then by 1 + 10(d-1) + ((d-1)/2)^2, times 2(1-b); at a loss it shrinks to b times itself, b = RTTmin/RTTmax in
 * [0.5, 0.8], or 0.5 where the throughput at the last two losses differs by more than a fifth (bandwidth switch).
 * Linux also divides the growth by 10 RTTmin/s, clamped to [0.5, 10] (RTT scaling), and forgets RTTmax slowly.
 *
 * Time is in microseconds here and in jiffies there; the rest is the same arithmetic.
 */
#include "tcp.bpf.h"

#define SECOND 1000000ULL
#define ALPHA_BASE (1U << 7)
#define BETA_MIN (1U << 6)
#define BETA_MAX 102U

struct htcp {
	__u64 last_loss;
	__u64 undo_last_loss;
	__u64 measured_at;
	/* Segments a round trip, times 2^7. */
	__u32 alpha;
	/* Share of the window that a loss leaves, times 2^7. */
	__u32 beta;
	__u32 acked;
	__u32 counted;
	__u32 min_rtt;
	__u32 max_rtt;
	__u32 undo_max_rtt;
	__u32 undo_old_max_rate;
	__u32 min_rate;
	__u32 max_rate;
	__u32 old_max_rate;
	__u32 rate;
	__u32 is_adaptive;
};

_Static_assert(sizeof(struct htcp) <= sizeof(((struct inet_connection_sock *)0)->icsk_ca_priv), "private state");

static __always_inline __u64 now_of(const struct sock *sk)
{
	return tcp_of(sk)->tcp_mstamp;
}

/* Round trips since the last loss. */
static __always_inline __u64 rounds(const struct htcp *ca, __u64 now)
{
	return ca->min_rtt ? (now - ca->last_loss) / ca->min_rtt : 0;
}

static __always_inline void lost(struct htcp *ca, __u64 now)
{
	ca->undo_last_loss = ca->last_loss;
	ca->undo_max_rtt = ca->max_rtt;
	ca->undo_old_max_rate = ca->old_max_rate;
	ca->last_loss = now;
}

static __always_inline void measure_rtt(struct htcp *ca, __u32 rtt, bool is_open)
{
	if (!ca->min_rtt || rtt < ca->min_rtt)
		ca->min_rtt = rtt;
	if (!is_open)
		return;
	if (ca->max_rtt < ca->min_rtt)
		ca->max_rtt = ca->min_rtt;
	if (ca->max_rtt < rtt && rtt <= ca->max_rtt + 20000)
		ca->max_rtt = rtt;
}

static __always_inline void update_alpha(struct htcp *ca, __u64 now)
{
	__u64 since = now - ca->last_loss;
	__u64 factor = 1;
	__u32 min_rtt = ca->min_rtt;

	if (since > SECOND) {
		since -= SECOND;
		factor = 1 + (10 * since + (since / 2) * (since / 2) / SECOND) / SECOND;
	}
	if (min_rtt) {
		__u64 scale = (SECOND << 3) / (10ULL * min_rtt);

		if (scale < 1 << 2)
			scale = 1 << 2;
		if (scale > 10 << 3)
			scale = 10 << 3;
		factor = (factor << 3) / scale;
		if (!factor)
			factor = 1;
	}
	ca->alpha = (__u32)(2 * factor * ((1U << 7) - ca->beta));
	if (!ca->alpha)
		ca->alpha = ALPHA_BASE;
}

static __always_inline void update_beta(struct htcp *ca)
{
	__u32 rate = ca->max_rate, old = ca->old_max_rate, beta;

	ca->old_max_rate = rate;
	/* Unsigned differences, as the kernel's between(). */
	if (!(6 * old - 4 * old >= 5 * rate - 4 * old)) {
		ca->beta = BETA_MIN;
		ca->is_adaptive = 0;
		return;
	}
	if (!ca->is_adaptive || ca->min_rtt <= 10000 || !ca->max_rtt) {
		ca->beta = BETA_MIN;
		ca->is_adaptive = 1;
		return;
	}
	beta = (__u32)(((__u64)ca->min_rtt << 7) / ca->max_rtt);
	if (beta < BETA_MIN)
		beta = BETA_MIN;
	if (beta > BETA_MAX)
		beta = BETA_MAX;
	ca->beta = beta;
}

SEC("struct_ops")
void htcp_init(__u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	struct htcp *ca = private_of(sk);

	ca->undo_last_loss = 0;
	ca->measured_at = 0;
	ca->alpha = ALPHA_BASE;
	ca->beta = BETA_MIN;
	ca->acked = 1;
	ca->counted = 0;
	ca->min_rtt = 0;
	ca->max_rtt = 0;
	ca->undo_max_rtt = 0;
	ca->undo_old_max_rate = 0;
	ca->min_rate = 0;
	ca->max_rate = 0;
	ca->old_max_rate = 0;
	ca->rate = 0;
	ca->is_adaptive = 0;
	ca->last_loss = now_of(sk);
}

SEC("struct_ops")
void htcp_pkts_acked(__u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	const struct ack_sample *sample = (const struct ack_sample *)arguments[1];
	struct htcp *ca = private_of(sk);
	__u32 window = tcp_of(sk)->snd_cwnd;
	__u32 step = ca->alpha >> 7 ? ca->alpha >> 7 : 1;
	__u64 now = now_of(sk), passed;
	__u8 state = state_of(sk);
	__s32 rtt = sample->rtt_us;

	if (state == TCP_CA_Open)
		ca->acked = sample->pkts_acked;
	if (rtt > 0)
		measure_rtt(ca, rtt, state == TCP_CA_Open);
	if (state != TCP_CA_Open && state != TCP_CA_Disorder) {
		ca->counted = 0;
		ca->measured_at = now;
		return;
	}
	ca->counted += sample->pkts_acked;
	passed = now - ca->measured_at;
	if (ca->counted < window - step || !ca->min_rtt || passed < ca->min_rtt)
		return;
	__u32 rate = (__u32)(ca->counted * SECOND / passed);

	if (rounds(ca, now) <= 3) {
		/* Just after a loss. */
		ca->min_rate = ca->max_rate = ca->rate = rate;
	} else {
		ca->rate = (3 * ca->rate + rate) / 4;
		if (ca->rate > ca->max_rate)
			ca->max_rate = ca->rate;
		if (ca->min_rate > ca->max_rate)
			ca->min_rate = ca->max_rate;
	}
	ca->counted = 0;
	ca->measured_at = now;
}

SEC("struct_ops")
__u32 htcp_ssthresh(__u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	struct htcp *ca = private_of(sk);
	__u32 window;

	update_beta(ca);
	update_alpha(ca, now_of(sk));
	/* RTTmax fades, so that a change of route is forgotten. */
	if (ca->min_rtt && ca->max_rtt > ca->min_rtt)
		ca->max_rtt = ca->min_rtt + (__u32)((ca->max_rtt - ca->min_rtt) * 95ULL / 100);
	window = (__u32)(((__u64)tcp_of(sk)->snd_cwnd * ca->beta) >> 7);
	return window > 2 ? window : 2;
}

SEC("struct_ops")
void htcp_cong_avoid(__u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	struct tcp_sock *tp = tcp_of(sk);
	struct htcp *ca = private_of(sk);

	if (!is_cwnd_limited(tp))
		return;
	if (in_slow_start(tp)) {
		tcp_slow_start(tp, (__u32)arguments[2]);
		return;
	}
	if (((__u64)tp->snd_cwnd_cnt * ca->alpha) >> 7 >= tp->snd_cwnd) {
		if (tp->snd_cwnd < tp->snd_cwnd_clamp)
			tp->snd_cwnd = tp->snd_cwnd + 1;
		tp->snd_cwnd_cnt = 0;
		update_alpha(ca, now_of(sk));
	} else {
		tp->snd_cwnd_cnt += ca->acked;
	}
	ca->acked = 1;
}

SEC("struct_ops")
void htcp_set_state(__u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	struct htcp *ca = private_of(sk);
	__u8 state = (__u8)arguments[1];

	if (state == TCP_CA_Open && ca->undo_last_loss) {
		ca->last_loss = now_of(sk);
		ca->undo_last_loss = 0;
	} else if (state == TCP_CA_CWR || state == TCP_CA_Recovery || state == TCP_CA_Loss) {
		lost(ca, now_of(sk));
	}
}

SEC("struct_ops")
__u32 htcp_undo_cwnd(__u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	struct htcp *ca = private_of(sk);

	if (ca->undo_last_loss) {
		ca->last_loss = ca->undo_last_loss;
		ca->max_rtt = ca->undo_max_rtt;
		ca->old_max_rate = ca->undo_old_max_rate;
		ca->undo_last_loss = 0;
	}
	return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops fl_htcp = {
	.init = (void *)htcp_init,
	.ssthresh = (void *)htcp_ssthresh,
	.cong_avoid = (void *)htcp_cong_avoid,
	.set_state = (void *)htcp_set_state,
	.undo_cwnd = (void *)htcp_undo_cwnd,
	.pkts_acked = (void *)htcp_pkts_acked,
	.name = "htcp",
};

char LICENSE[] SEC("license") = "GPL";
