/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * bbr_tso: the kernel's BBR (net/ipv4/tcp_bbr.c), whose own functions do everything but one thing: they say how little TCP may
 * hand down at once. That is two segments of a connection that is paced slower than two a millisecond, as each of many over one long path is,
 * and then each super-packet costs every queue, timer and interrupt on the way as much as a whole one would. Here it is what the rate makes in
 * a 16th of a round trip, or in 4 ms where that is less, and a whole super-packet at most: below 16 ms no more than BBR's.
 */
#include "tcp.bpf.h"

#define SECOND 1000000ULL
#define ROUND_TRIP_SHIFT 4
#define MOST_US 4000ULL
#define SUPER_PACKET 65536ULL
/* Bytes a second from which anything is a whole super-packet: what is not known yet has none. */
#define FASTEST 1000000000000ULL

/* What net/ipv4/tcp_bbr.c lends to such programs, as since Linux 6.10. */
extern void bbr_init(struct sock *sk) __ksym;
extern void bbr_main(struct sock *sk, __u32 ack, int flag, const struct rate_sample *sample) __ksym;
extern __u32 bbr_sndbuf_expand(struct sock *sk) __ksym;
extern __u32 bbr_undo_cwnd(struct sock *sk) __ksym;
extern void bbr_cwnd_event(struct sock *sk, enum tcp_ca_event event) __ksym;
extern __u32 bbr_ssthresh(struct sock *sk) __ksym;
extern __u32 bbr_min_tso_segs(struct sock *sk) __ksym;
extern void bbr_set_state(struct sock *sk, __u8 new_state) __ksym;

SEC("struct_ops")
void bbr_tso_init(__u64 *arguments)
{
	bbr_init((struct sock *)arguments[0]);
}

SEC("struct_ops")
void bbr_tso_cong_control(__u64 *arguments)
{
	bbr_main((struct sock *)arguments[0], (__u32)arguments[1], (int)arguments[2],
		 (const struct rate_sample *)arguments[3]);
}

SEC("struct_ops")
__u32 bbr_tso_sndbuf_expand(__u64 *arguments)
{
	return bbr_sndbuf_expand((struct sock *)arguments[0]);
}

SEC("struct_ops")
__u32 bbr_tso_undo_cwnd(__u64 *arguments)
{
	return bbr_undo_cwnd((struct sock *)arguments[0]);
}

SEC("struct_ops")
void bbr_tso_cwnd_event(__u64 *arguments)
{
	bbr_cwnd_event((struct sock *)arguments[0], (enum tcp_ca_event)arguments[1]);
}

SEC("struct_ops")
__u32 bbr_tso_ssthresh(__u64 *arguments)
{
	return bbr_ssthresh((struct sock *)arguments[0]);
}

SEC("struct_ops")
void bbr_tso_set_state(__u64 *arguments)
{
	bbr_set_state((struct sock *)arguments[0], (__u8)arguments[1]);
}

SEC("struct_ops")
__u32 bbr_tso_min_tso_segs(__u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	struct tcp_sock *tp = tcp_of(sk);
	__u64 round_trip = tp->srtt_us >> 3;
	__u64 us = smaller(round_trip >> ROUND_TRIP_SHIFT, MOST_US);
	__u64 bytes = smaller(sk->sk_pacing_rate, FASTEST) * us / SECOND;

	return larger(smaller(bytes, SUPER_PACKET) / mss_of(tp), bbr_min_tso_segs(sk));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops fl_bbr_tso = {
	.init = (void *)bbr_tso_init,
	.ssthresh = (void *)bbr_tso_ssthresh,
	.set_state = (void *)bbr_tso_set_state,
	.undo_cwnd = (void *)bbr_tso_undo_cwnd,
	.cwnd_event = (void *)bbr_tso_cwnd_event,
	.cong_control = (void *)bbr_tso_cong_control,
	.min_tso_segs = (void *)bbr_tso_min_tso_segs,
	.sndbuf_expand = (void *)bbr_tso_sndbuf_expand,
	.name = "bbr_tso",
};

char LICENSE[] SEC("license") = "GPL";
