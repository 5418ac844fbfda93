/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Scalable TCP (T. Kelly, "Scalable TCP: improving performance in highspeed wide area networks", CCR 33(2), 2003), as
 * Linux's net/ipv4/tcp_scalable.c computes it: one segment more for every 100 acknowledged, an eighth less at a loss.
 * The published form adds 0.01 segments an acknowledgement of one segment: the same.
 */
#include "tcp.bpf.h"

/* Segments acknowledged for one more in the window. */
#define AI_COUNT 100U

/* The window's share that a loss costs: 2^-3. */
#define MD_SHIFT 3

SEC("struct_ops")
void scalable_cong_avoid(__u64 *arguments)
{
	struct tcp_sock *tp = tcp_of((struct sock *)arguments[0]);
	__u32 acked = (__u32)arguments[2];

	if (!is_cwnd_limited(tp))
		return;
	if (in_slow_start(tp)) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	tcp_cong_avoid_ai(tp, tp->snd_cwnd < AI_COUNT ? tp->snd_cwnd : AI_COUNT, acked);
}

SEC("struct_ops")
__u32 scalable_ssthresh(__u64 *arguments)
{
	const struct tcp_sock *tp = tcp_of((struct sock *)arguments[0]);
	__u32 window = tp->snd_cwnd - (tp->snd_cwnd >> MD_SHIFT);

	return window > 2 ? window : 2;
}

SEC("struct_ops")
__u32 scalable_undo_cwnd(__u64 *arguments)
{
	return tcp_reno_undo_cwnd((struct sock *)arguments[0]);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops fl_scalable = {
	.ssthresh = (void *)scalable_ssthresh,
	.cong_avoid = (void *)scalable_cong_avoid,
	.undo_cwnd = (void *)scalable_undo_cwnd,
	.name = "scalable",
};

char LICENSE[] SEC("license") = "GPL";
