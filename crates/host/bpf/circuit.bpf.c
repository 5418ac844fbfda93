/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * circuit: a congestion control for a connection whose rate its owner guarantees. It searches for nothing: the window is
 * the declared rate times the least round trip and a margin, and what is sent is held to the declared rate from the
 * first segment on. Loss is repaired and not taken for congestion. Where the path does not deliver what was
 * declared for several round trips, it falls back to what it does deliver.
 *
 * The declared rate is the wire's, in bytes a second: SO_MAX_PACING_RATE. Undeclared, it holds 1 Mbit/s.
 *
 * The first window is paced by the kernel's timers. From then on acknowledgements are the clock: each refills two buckets, and
 * the window is what is in flight and what both hold. No timer is then needed, of which 10 Gb/s would take 20,000 a
 * second. But a clock that comes in bursts, after a host stood still, would let a bucket go at each burst and no more, with
 * every round trip again: where what is in flight is too little for the path, timers pace until it is enough.
 *
 * The deep bucket is filled at the declared rate: what could not be sent for a while, because nothing was acknowledged or
 * nobody had time, may be sent later; else the gap that it left would come around with every round trip. The shallow one
 * bounds how fast that is: a 32nd faster than declared, a 16th while losses are repaired.
 */
#include "tcp.bpf.h"

#define SECOND 1000000ULL

/* What Ethernet takes a packet: preamble 8, header 14, FCS 4, gap 12; and TCP's and IP's headers. */
#define FRAMING 38
#define TCP_HEADER 32
#define IPV4_HEADER 20
#define IPV6_HEADER 40
#define AF_INET6 10

#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1
#define UNDECLARED 125000ULL

/* Of the rate, in microseconds: what a window may hold beyond rate x RTT, so that acknowledgements that come late or
 * together do not stop the sender. Below half a queue of 50 ms, in which it ends where the path is slower. */
#define MARGIN_US 20000ULL
/* What may leave at once: so much of the rate, and no less than three super-packets. TCP waits until it may send a whole
 * one, and acknowledgements of two may come as one: with less, what they allow would be lost. */
#define BUCKET_PACKETS 3
#define BUCKET_US 450ULL
#define CATCH_UP_SHIFT 5
#define HURRIED_SHIFT 4
/* Timers are late on a busy host, and the kernel makes up for half of that at most: at 10 Gb/s a tenth is missing. So
 * they are set a 16th faster: in the first round trip, of which nothing is known, and later for as long as the buckets tell
 * that less was sent than declared. */
#define LATE_SHIFT 4
/* Of the rate: what may be caught up with; and after a pause of the program. */
#define DEPTH_US 50000ULL
#define PAUSE_US 5000ULL
#define CA_RECOVERY 3
#define LEAST_WINDOW 8
#define LEAST_CLOCK 4

/* What is delivered is judged over a round trip, or this long where that is short. */
#define PERIOD_US 50000ULL
/* Periods in a row after which the declaration is not believed any more. */
#define PATIENCE 4
/* Periods until what a lower rate does is seen. */
#define ANSWER 2

struct circuit {
	__u64 declared;      /* payload, bytes a second */
	__u64 rate;          /* the same, that is held now */
	__u64 bucket_at;     /* when the bucket was last filled */
	__u64 bucket_sent;   /* bytes that had been sent then */
	__u64 period_at;
	__u64 period_sent;
	__u64 sent_rate;     /* in the period before the last */
	__u64 best;          /* delivered, over the bad periods */
	__u32 period_delivered;
	__u32 period_lost;
	__u32 min_rtt;
	__s32 deep;          /* bytes in the buckets */
	__s32 shallow;
	__u16 period_rtt_100us;
	__u8 bad;            /* periods in a row; once fallen back, periods to wait */
	__u8 is_clocked;
	__u8 fell_back;
};

_Static_assert(sizeof(struct circuit) <= sizeof(((struct inet_connection_sock *)0)->icsk_ca_priv), "private state");

static __always_inline __u32 mss_of(const struct tcp_sock *tp)
{
	__u32 mss = tp->mss_cache;

	return mss ? mss : 536;
}

static __always_inline __u64 bytes_in(__u64 rate, __u64 us)
{
	return rate * us / SECOND;
}

/* What TCP sends as one, as tcp_tso_autosize has it: a millisecond of the rate, two segments to 64 KiB. */
static __always_inline __u64 super_packet(const struct circuit *ca, __u32 mss)
{
	__u64 bytes = ca->rate >> 10;

	if (bytes < 2 * (__u64)mss)
		return 2 * (__u64)mss;
	return bytes < 65536 ? bytes : 65536;
}

static __always_inline __u64 at_once(const struct circuit *ca, __u64 packet)
{
	__u64 bytes = bytes_in(ca->rate, BUCKET_US);

	return bytes > BUCKET_PACKETS * packet ? bytes : BUCKET_PACKETS * packet;
}

/* What a bucket of `depth` holds after `came` and `left`; what timers sent beyond it is owed. */
static __always_inline __s32 refilled(__s32 held, __u64 came, __u64 left, __u64 depth)
{
	__s64 now = held + (__s64)came - (__s64)left;
	__s64 least = -(__s64)depth;

	now = now > least ? now : least;
	return (__s32)(now < (__s64)depth ? now : (__s64)depth);
}

static __always_inline __u32 target_of(const struct circuit *ca, __u32 mss)
{
	__u64 window = bytes_in(ca->rate, ca->min_rtt + MARGIN_US) / mss;

	return window > LEAST_WINDOW ? (__u32)window : LEAST_WINDOW;
}

/* The payload that the declared rate of the wire carries. */
static __always_inline __u64 payload_rate(struct sock *sk, __u32 mss)
{
	__u64 wire = sk->sk_max_pacing_rate;
	__u32 around = FRAMING + TCP_HEADER + (sk->__sk_common.skc_family == AF_INET6 ? IPV6_HEADER : IPV4_HEADER);

	if (wire == ~0UL)
		wire = UNDECLARED;
	return wire * mss / (mss + around);
}

SEC("struct_ops")
void circuit_init(__u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	struct tcp_sock *tp = tcp_of(sk);
	struct circuit *ca = private_of(sk);
	__u32 mss = mss_of(tp);

	ca->min_rtt = tp->srtt_us >> 3;
	ca->declared = ca->rate = payload_rate(sk, mss);
	ca->bucket_at = ca->period_at = tp->tcp_mstamp;
	ca->bucket_sent = ca->period_sent = tp->bytes_sent;
	ca->period_delivered = tp->delivered;
	ca->period_lost = tp->lost;
	ca->sent_rate = 0;
	ca->best = 0;
	ca->deep = 0;
	ca->shallow = 0;
	ca->period_rtt_100us = 0;
	ca->bad = 0;
	ca->is_clocked = 0;
	ca->fell_back = 0;
	sk->sk_pacing_rate = ca->rate + (ca->rate >> LATE_SHIFT);
	sk->sk_pacing_status = SK_PACING_NEEDED;
	tp->snd_ssthresh = 0x7fffffff;
	tp->snd_cwnd = target_of(ca, mss);
}

/* A round trip or more has passed: does the path deliver what is sent? */
static __always_inline void judge(struct sock *sk, struct circuit *ca, __u64 now, __u32 mss, bool is_app_limited,
				  bool is_full)
{
	struct tcp_sock *tp = tcp_of(sk);
	__u64 passed = now - ca->period_at;
	__u32 delivered = tp->delivered - ca->period_delivered;
	__u32 lost = tp->lost - ca->period_lost;
	__u64 sent = tp->bytes_sent - ca->period_sent;
	__u64 arrived_rate = (__u64)delivered * mss * SECOND / passed;
	__u64 earlier = ca->sent_rate;
	bool is_queueing = ca->period_rtt_100us != 0xffff &&
			   ca->period_rtt_100us * 100ULL > ca->min_rtt + MARGIN_US / 2;

	ca->sent_rate = sent * SECOND / passed;
	ca->period_at = now;
	ca->period_sent = tp->bytes_sent;
	ca->period_delivered = tp->delivered;
	ca->period_lost = tp->lost;
	ca->period_rtt_100us = 0xffff;
	if (arrived_rate > ca->best)
		ca->best = arrived_rate;

	if (!ca->fell_back) {
		/* What was sent a round trip ago should arrive now, and a full window is all of the rate; a tenth is room for
		 * loss and noise. */
		bool is_bad = earlier && !is_app_limited &&
			      (arrived_rate * 10 < earlier * 9 || (is_full && arrived_rate * 10 < ca->rate * 9));

		ca->bad = is_bad ? ca->bad + 1 : 0;
		if (!is_bad)
			ca->best = 0;
		if (ca->bad < PATIENCE)
			return;
		ca->fell_back = 1;
		ca->rate = ca->best * 95 / 100;
		ca->bad = ANSWER;
	} else if (ca->bad) {
		ca->bad--;
		return;
	} else if (is_queueing || lost * 50 > delivered) {
		/* More than the path takes: what has arrived, a little less. */
		ca->rate = (arrived_rate < ca->rate ? arrived_rate : ca->rate) * 97 / 100;
		ca->bad = ANSWER;
	} else if (!is_app_limited && arrived_rate * 100 >= ca->rate * 95) {
		ca->rate += ca->rate / 50;
	}
	if (ca->rate > ca->declared)
		ca->rate = ca->declared;
	if (ca->rate < UNDECLARED / 10)
		ca->rate = UNDECLARED / 10;
	ca->best = 0;
}

SEC("struct_ops")
void circuit_cong_control(__u64 *arguments)
{
	struct sock *sk = (struct sock *)arguments[0];
	const struct rate_sample *sample = (const struct rate_sample *)arguments[3];
	struct tcp_sock *tp = tcp_of(sk);
	struct circuit *ca = private_of(sk);
	__u32 mss = mss_of(tp), target, window;
	__s32 deep, shallow;
	bool is_hurried, is_late;
	__u64 now = tp->tcp_mstamp, packet, burst, grant, path, wanted, reach, passed, came, sent;
	__u32 in_flight = tp->packets_out - (tp->sacked_out + tp->lost_out) + tp->retrans_out;
	__s64 rtt = sample->rtt_us;

	if (rtt > 0) {
		__u64 coarse = rtt / 100;

		if (!ca->min_rtt || rtt < ca->min_rtt)
			ca->min_rtt = (__u32)rtt;
		if (coarse < ca->period_rtt_100us || !ca->period_rtt_100us)
			ca->period_rtt_100us = coarse < 0xffff ? (__u16)coarse : 0xffff;
	}
	target = target_of(ca, mss);
	if (now - ca->period_at >= ca->min_rtt && now - ca->period_at >= PERIOD_US) {
		judge(sk, ca, now, mss, sample->is_app_limited, in_flight + sample->acked_sacked >= target - target / 8);
		target = target_of(ca, mss);
	}
	packet = super_packet(ca, mss);
	burst = at_once(ca, packet);
	/* Each repair keeps both ends busy for milliseconds, in which nothing is acknowledged: more must be caught up with. */
	is_hurried = ((struct inet_connection_sock *)sk)->icsk_ca_state >= CA_RECOVERY &&
		     bytes_in(ca->rate, ca->min_rtt) > burst;
	passed = now - ca->bucket_at;
	sent = tp->bytes_sent - ca->bucket_sent;
	came = bytes_in(ca->rate, passed);
	deep = refilled(ca->deep, came, sent, bytes_in(ca->rate, sample->is_app_limited ? PAUSE_US : DEPTH_US));
	shallow = refilled(ca->shallow, came + (came >> (is_hurried && !ca->is_clocked ? HURRIED_SHIFT : CATCH_UP_SHIFT)), sent, burst);
	/* Fractions of a byte are kept by not moving the time. */
	if (passed >= 100) {
		ca->deep = deep;
		ca->shallow = shallow;
		ca->bucket_at = now;
		ca->bucket_sent = tp->bytes_sent;
	}
	if (shallow > deep)
		shallow = deep;
	grant = shallow > 0 ? (__u32)shallow : 0;
	/* While losses are repaired TCP does not wait for a whole super-packet, and small ones cost as much as whole ones. */
	if (is_hurried && in_flight * (__u64)mss > 2 * packet)
		grant = grant / packet * packet;
	window = in_flight + grant / mss;
	path = bytes_in(ca->rate, ca->min_rtt) / mss;
	reach = in_flight + burst / mss;
	wanted = path - (is_hurried ? 0 : path / 16) - (ca->is_clocked ? path / 16 : 0);
	if (window < LEAST_CLOCK || reach < wanted) {
		ca->is_clocked = 0;
		/* What timers send faster and what the bucket lets go at once are 1 MB in 10 ms together. */
		is_late = shallow > (__s32)(is_hurried ? burst / 8 * 5 : 0) && !ca->fell_back;
		sk->sk_pacing_rate = ca->rate + (is_late ? ca->rate >> LATE_SHIFT : 0);
		sk->sk_pacing_status = SK_PACING_NEEDED;
		tp->snd_cwnd = target;
		return;
	}
	if (!ca->is_clocked && is_hurried && sk->sk_pacing_rate > ca->rate && shallow > 0) {
		/* What timers sent faster may not be sent at once on top of it. */
		ca->shallow = 0;
		ca->bucket_at = now;
		ca->bucket_sent = tp->bytes_sent;
		ca->deep = deep;
		window = in_flight;
	}
	ca->is_clocked = 1;
	sk->sk_pacing_rate = ca->rate;
	sk->sk_pacing_status = SK_PACING_NONE;
	tp->snd_cwnd = window < target ? window : target;
}

SEC("struct_ops")
__u32 circuit_ssthresh(__u64 *arguments)
{
	return tcp_of((struct sock *)arguments[0])->snd_ssthresh;
}

SEC("struct_ops")
__u32 circuit_undo_cwnd(__u64 *arguments)
{
	return tcp_of((struct sock *)arguments[0])->snd_cwnd;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops fl_circuit = {
	.init = (void *)circuit_init,
	.ssthresh = (void *)circuit_ssthresh,
	.undo_cwnd = (void *)circuit_undo_cwnd,
	.cong_control = (void *)circuit_cong_control,
	.name = "circuit",
};

char LICENSE[] SEC("license") = "GPL";
