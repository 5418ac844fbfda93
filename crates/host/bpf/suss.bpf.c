/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * suss: CUBIC, by the kernel's own functions (net/ipv4/tcp_cubic.c), whose slow start grows by four a round trip where another doubling
 * would be safe (M. Arghavani et al., "SUSS: Improving TCP Performance by Speeding Up Slow-Start", SIGCOMM 2024): for acknowledgements of
 * the first eighth of a round trip of each round, of which four times as many take a half, where HyStart ends slow start, and while they
 * have not waited in a queue, of half of what HyStart ends it for. What comes later in a round lets the window grow as ever.
 * Other than in the paper what is sent more is not spread over the round trip: it leaves as a burst, which shows what the path carries.
 */
#include "tcp.bpf.h"

#define TRAIN_SHIFT 3
/* Above the least round trip, and at most. */
#define QUEUE_SHIFT 4
#define QUEUE_US 8000U
/* include/net/tcp.h */
#define TCP_INFINITE_SSTHRESH 0x7fffffffU
/* Segments more than the kernel's for each that arrived: one doubles the window, three make it four. */
#define MORE 2U

/* What net/ipv4/tcp_cubic.c lends to such programs. */
extern void cubictcp_init(struct sock *sk) __ksym;
extern __u32 cubictcp_recalc_ssthresh(struct sock *sk) __ksym;
extern void cubictcp_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;
extern void cubictcp_state(struct sock *sk, __u8 new_state) __ksym;
extern void cubictcp_cwnd_event(struct sock *sk, enum tcp_ca_event event) __ksym;
extern void cubictcp_acked(struct sock *sk, const struct ack_sample *sample) __ksym;

/* CUBIC's own state of a connection, which it keeps where ours is. */
struct bictcp {
	__u32 cnt;
} __attribute__((preserve_access_index));

#define CUBICS 8

struct suss {
	__u64 cubic[CUBICS];
	__u64 round_at;      /* when the round's first acknowledgement came */
	__u32 round_end;     /* it ends when that is acknowledged */
	__u32 rtt;           /* the last, microseconds; 0 before */
	__u32 min_rtt;       /* the least of all */
	__u8 has_begun;
};

_Static_assert(sizeof(struct suss) <= sizeof(((struct inet_connection_sock *)0)->icsk_ca_priv), "private state");

/* Whether it leaves us our place. */
static __always_inline bool is_ours(void)
{
	__u64 size = bpf_core_type_size(struct bictcp);

	return size && size <= CUBICS * sizeof(__u64);
}

/* include/net/tcp.h: before */
static __always_inline bool is_before(__u32 one, __u32 other)
{
	return (__s32)(one - other) < 0;
}

SEC("struct_ops")
void suss_init(__u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	struct suss *ca = private_of(sk);

	cubictcp_init(sk);
	if (!is_ours())
		return;
	ca->round_at = 0;
	ca->round_end = 0;
	ca->rtt = 0;
	ca->min_rtt = tcp_of(sk)->srtt_us >> 3;
	ca->has_begun = 0;
}

SEC("struct_ops")
void suss_cong_avoid(__u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	__u32 ack = (__u32)arguments[1], acked = (__u32)arguments[2];
	struct tcp_sock *tp = tcp_of(sk);
	struct suss *ca = private_of(sk);

	/* After a loss, or a rest, the kernel's slow start leads to where the window was: that is no time for haste. */
	if (is_ours() && tp->snd_ssthresh >= TCP_INFINITE_SSTHRESH && is_cwnd_limited(tp)) {
		__u64 now = tp->tcp_mstamp;

		if (!ca->has_begun || !is_before(ack, ca->round_end)) {
			ca->has_begun = 1;
			ca->round_at = now;
			ca->round_end = tp->snd_nxt;
		}
		if (ca->min_rtt && now - ca->round_at <= ca->min_rtt >> TRAIN_SHIFT &&
		    ca->rtt <= ca->min_rtt + smaller(ca->min_rtt >> QUEUE_SHIFT, QUEUE_US))
			tp->snd_cwnd = smaller((__u64)tp->snd_cwnd + MORE * acked, tp->snd_cwnd_clamp);
	}
	cubictcp_cong_avoid(sk, ack, acked);
}

SEC("struct_ops")
void suss_pkts_acked(__u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	const struct ack_sample *sample = (const struct ack_sample *)arguments[1];
	struct suss *ca = private_of(sk);
	__s32 rtt = sample->rtt_us;

	if (rtt > 0 && is_ours()) {
		ca->rtt = rtt;
		if (!ca->min_rtt || (__u32)rtt < ca->min_rtt)
			ca->min_rtt = rtt;
	}
	cubictcp_acked(sk, sample);
}

SEC("struct_ops")
__u32 suss_ssthresh(__u64 *arguments)
{
	return cubictcp_recalc_ssthresh((struct sock *)arguments[0]);
}

SEC("struct_ops")
void suss_set_state(__u64 *arguments)
{
	cubictcp_state((struct sock *)arguments[0], (__u8)arguments[1]);
}

SEC("struct_ops")
__u32 suss_undo_cwnd(__u64 *arguments)
{
	return tcp_reno_undo_cwnd((struct sock *)arguments[0]);
}

SEC("struct_ops")
void suss_cwnd_event(__u64 *arguments)
{
	cubictcp_cwnd_event((struct sock *)arguments[0], (enum tcp_ca_event)arguments[1]);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops fl_suss = {
	.init = (void *)suss_init,
	.ssthresh = (void *)suss_ssthresh,
	.cong_avoid = (void *)suss_cong_avoid,
	.set_state = (void *)suss_set_state,
	.undo_cwnd = (void *)suss_undo_cwnd,
	.cwnd_event = (void *)suss_cwnd_event,
	.pkts_acked = (void *)suss_pkts_acked,
	.name = "suss",
};

char LICENSE[] SEC("license") = "GPL";
