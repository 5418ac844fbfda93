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
 * bounds how fast that is: a 32nd faster than declared, a 16th while losses are repaired. And what all streams to one host
 * send at once and catch up with is bounded together, by a pool: after a pause every one of them has something to send.
 *
 * Fallen back, it sends what arrives: less while what it sends waits or is lost, unless that does not help. Then
 * delay and loss are the path's own, and the rate grows again, up to what was declared.
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
 * they are set up to a 16th faster: in the first round trip, of which nothing is known, by three quarters of that, and later
 * for as long as the buckets tell that less was sent than declared. */
#define LATE_SHIFT 4
#define LATE_INTERVAL_US 80ULL
/* Of the rate: what may be caught up with; and after a pause of the program. */
#define DEPTH_US 50000ULL
#define PAUSE_US 5000ULL
/* All streams together: so much at once, and so much a second beyond what they declared, are 1 MB in 10 ms with a few
 * super-packets to spare; beyond 10 Gb/s in proportion, or pauses of some microseconds would cost rate for good. */
#define POOL_BYTES 500000ULL
#define POOL_US 400ULL
#define POOL_CATCH_UP 25000000ULL
#define POOL_CATCH_UP_PART 50
/* Fractions of a byte are lost with each filling: not for less than this. */
#define POOL_LEAST 1000ULL
#define POOLS 64
#define MIXER 0x9e3779b97f4a7c15ULL
#define CA_RECOVERY 3
#define LEAST_WINDOW 8
#define LEAST_CLOCK 4

/* What is delivered is judged over a round trip, or this long where that is short, and over so many packets, or a second. */
#define PERIOD_US 50000ULL
#define PERIOD_PACKETS 128
/* Periods in a row after which the declaration is not believed any more. */
#define PATIENCE 4
/* Periods until what a lower rate does is seen. */
#define ANSWER 2
/* Of what is delivered, in 256ths, and packets beyond: more loss than that, in several periods in a row, is no noise of a
 * line (3%); once fallen back, 2% more than twice the line's own are too many. */
#define LOSS_256THS 8
#define MORE_LOSS_256THS 5
#define TOLERATED_LOST 2
#define MOST_OWN_LOSS_256THS 26
/* Times, less those that it did, that a lower rate brought neither the delay nor the loss down: what our window may have queued has long
 * drained, so both are the path's own, whose way has changed or which others use, too. The sooner where the delay is
 * more than our window can queue. */
#define IN_VAIN 8
#define SOON_IN_VAIN 2
/* Times in a row that a rate higher by a 50th arrived: a 12th at a time from then on. */
#define CALM 8

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
	__s32 drawn;         /* bytes taken from the pool */
	__u32 drawn_at;      /* bytes that had been sent then, modulo 2^32 */
	__u16 period_rtt_100us;
	__u8 pool;
	__u8 bad;            /* periods in a row; once fallen back, periods to wait */
	__u8 is_clocked;
	__u8 fell_back;
	__u8 is_counted;     /* in the pool's rate */
	__u8 delayed;        /* times that a lower rate brought the delay not down */
	__u8 losing;         /* nor the loss */
	__u8 own_loss;       /* 256ths, of the path's own */
	__u8 calm;           /* times in a row that a higher rate arrived */
};

_Static_assert(sizeof(struct circuit) <= sizeof(((struct inet_connection_sock *)0)->icsk_ca_priv), "private state");

/* What all circuits from here to one host may send at once, together: no stream knows how many there are beside it. */
struct pool {
	__u64 declared;      /* of all of them, payload, bytes a second */
	__u64 at;            /* when it was last filled */
	__s64 bytes;
};

/* By a hash of namespace and address: those that meet in one share it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, POOLS);
	__type(key, __u32);
	__type(value, struct pool);
} pools SEC(".maps");

static __always_inline struct pool *pool_of(const struct circuit *ca)
{
	__u32 key = ca->pool;

	return bpf_map_lookup_elem(&pools, &key);
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

/* How much faster timers are set. The longer the interval between super-packets, the less do late ones cost; and the more
 * streams may meet in one moment, whose super-packets the 1 MB must hold, too. */
static __always_inline __u64 for_lateness(const struct circuit *ca, __u32 mss)
{
	__u64 packet = super_packet(ca, mss);
	__u32 shift = LATE_SHIFT;

	if (bytes_in(ca->rate, LATE_INTERVAL_US) < packet)
		shift++;
	if (bytes_in(ca->rate, 8 * LATE_INTERVAL_US) < packet)
		shift++;
	return ca->rate >> shift;
}

static __always_inline __u64 at_once(const struct circuit *ca, __u64 packet)
{
	return larger(bytes_in(ca->rate, BUCKET_US), BUCKET_PACKETS * packet);
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

static __always_inline __u8 pool_index(const struct sock *sk)
{
	__u64 hash = sk->__sk_common.skc_net.net->net_cookie * MIXER;

	if (sk->__sk_common.skc_family == AF_INET6) {
		for (int i = 0; i < 4; i++)
			hash = (hash ^ sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[i]) * MIXER;
	} else {
		hash = (hash ^ sk->__sk_common.skc_daddr) * MIXER;
	}
	return (hash >> 32) % POOLS;
}

static __always_inline __s64 depth_of(const struct pool *pool)
{
	return larger(POOL_BYTES, bytes_in(pool->declared, POOL_US));
}

/* Puts back what was not sent of what was taken, and fills up; what is in it then. */
static __always_inline __s64 settle(struct pool *pool, struct circuit *ca, __u64 sent, __u64 now)
{
	__u64 at = pool->at, declared = pool->declared, came = 0;
	__s64 depth = depth_of(pool);
	__u64 catch_up = larger(POOL_CATCH_UP, declared / POOL_CATCH_UP_PART);
	__s64 back = ca->drawn - (__s64)(__u32)((__u32)sent - ca->drawn_at), held;

	ca->drawn = 0;
	ca->drawn_at = (__u32)sent;
	if (now > at) {
		came = bytes_in(declared + catch_up, now - at < SECOND ? now - at : SECOND);
		if (came < POOL_LEAST || __sync_val_compare_and_swap(&pool->at, at, now) != at)
			came = 0;
	}
	back += came;
	held = __sync_fetch_and_add(&pool->bytes, back) + back;
	back = 0;
	if (held > depth)
		back = depth - held;
	else if (held < -depth)
		back = -depth - held;
	if (back)
		__sync_fetch_and_add(&pool->bytes, back);
	return held + back;
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
	ca->drawn = 0;
	ca->drawn_at = (__u32)tp->bytes_sent;
	ca->pool = pool_index(sk);
	ca->is_counted = 0;
	ca->delayed = 0;
	ca->losing = 0;
	ca->own_loss = 0;
	ca->calm = 0;
	/* Nothing bounds the first round trip but this. */
	sk->sk_pacing_rate = ca->rate + for_lateness(ca, mss) / 4 * 3;
	sk->sk_pacing_status = SK_PACING_NEEDED;
	tp->snd_ssthresh = 0x7fffffff;
	tp->snd_cwnd = target_of(ca, mss);
}

SEC("struct_ops")
void circuit_release(__u64 *arguments)
{
	struct circuit *ca = private_of((struct sock *)arguments[0]);
	struct pool *pool = pool_of(ca);

	if (pool && ca->is_counted)
		__sync_fetch_and_sub(&pool->declared, ca->declared);
}

/* A path whose packets became smaller carries less payload at the same rate of the wire. */
static __always_inline void declare(struct sock *sk, struct circuit *ca, struct pool *pool, __u32 mss)
{
	__u64 declared = payload_rate(sk, mss);

	if (declared == ca->declared)
		return;
	__sync_fetch_and_add(&pool->declared, declared - ca->declared);
	ca->declared = declared;
	if (!ca->fell_back || ca->rate > declared)
		ca->rate = declared;
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
	__u32 rtt = ca->period_rtt_100us * 100U;
	bool is_queueing = ca->period_rtt_100us != 0xffff && rtt > ca->min_rtt + MARGIN_US / 2;
	__u64 lost_256ths = 256ULL * lost / (delivered ? delivered : 1);
	__u32 tolerated = ca->fell_back ? ca->own_loss * 2 + MORE_LOSS_256THS : LOSS_256THS;
	bool is_losing = lost > TOLERATED_LOST + (__u64)delivered * tolerated / 256;
	/* What the path takes: its own loss has been sent, too. */
	__u64 taken_rate = arrived_rate + arrived_rate * ca->own_loss / 256;

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
			      (is_losing || arrived_rate * 10 < earlier * 9 ||
			       (is_full && arrived_rate * 10 < ca->rate * 9));

		ca->bad = is_bad ? ca->bad + 1 : 0;
		if (!is_bad)
			ca->best = 0;
		if (ca->bad < PATIENCE)
			return;
		ca->fell_back = 1;
		/* Losses alone leave the best as high as what is held: who looks must see a lower rate. */
		ca->rate = smaller(ca->best, ca->rate / 16 * 15) * 95 / 100;
		ca->bad = ANSWER;
	} else if (ca->bad) {
		ca->bad--;
		return;
	} else if (is_queueing || is_losing) {
		bool is_beyond = rtt > ca->min_rtt + ca->min_rtt / 8 + MARGIN_US / 4 * 5;
		bool is_own_delay = is_queueing && ++ca->delayed > (is_beyond ? SOON_IN_VAIN : IN_VAIN);
		bool is_own_loss = is_losing && ++ca->losing > IN_VAIN;

		ca->calm = 0;
		if (is_own_delay) {
			ca->min_rtt = rtt;
			ca->delayed = 0;
		}
		if (is_own_loss) {
			ca->own_loss = smaller(lost_256ths, MOST_OWN_LOSS_256THS);
			ca->losing = 0;
		}
		if (!is_own_delay && !is_own_loss) {
			/* More than the path takes: a little less, or at once what it took where that is far less; but
			 * once where a window too small for a longer way may be what keeps it low. */
			bool is_far_less = taken_rate * 8 < ca->rate * 7 && (!is_queueing || !is_beyond || ca->delayed == 1);

			ca->rate = (is_far_less ? taken_rate : ca->rate) * 97 / 100;
			ca->bad = ANSWER;
		}
	} else {
		if (ca->delayed)
			ca->delayed--;
		if (ca->losing)
			ca->losing--;
		/* What others lost here is not the line's for good. */
		if (lost_256ths < ca->own_loss)
			ca->own_loss--;
		/* What was sent a round trip ago has arrived, and was most of the rate. */
		if (!is_app_limited && taken_rate * 10 >= earlier * 9 && earlier * 4 >= ca->rate * 3) {
			ca->rate += ca->calm < CALM ? ca->rate / 50 : ca->rate / 12;
			if (ca->calm < CALM)
				ca->calm++;
		}
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
	__s64 rtt = sample->rtt_us, held;
	struct pool *pool;

	/* An answer to a SYN comes before init. */
	if (!ca->bucket_at)
		return;
	if (rtt > 0) {
		__u64 coarse = rtt / 100;

		if (!ca->min_rtt || rtt < ca->min_rtt)
			ca->min_rtt = (__u32)rtt;
		if (coarse < ca->period_rtt_100us || !ca->period_rtt_100us)
			ca->period_rtt_100us = coarse < 0xffff ? (__u16)coarse : 0xffff;
	}
	pool = pool_of(ca);
	if (!pool)
		return;
	packet = super_packet(ca, mss);
	if (!ca->is_counted) {
		/* Until now timers alone held it to its rate, and were fast: its share of the pool is gone. */
		ca->is_counted = 1;
		ca->drawn_at = (__u32)tp->bytes_sent;
		__sync_fetch_and_add(&pool->declared, ca->declared);
		settle(pool, ca, tp->bytes_sent, now);
		__sync_fetch_and_sub(&pool->bytes, (__s64)larger(bytes_in(ca->declared, POOL_US), packet));
	}
	target = target_of(ca, mss);
	passed = now - ca->period_at;
	if (passed >= ca->min_rtt && passed >= PERIOD_US &&
	    (tp->delivered - ca->period_delivered >= PERIOD_PACKETS || passed >= SECOND)) {
		declare(sk, ca, pool, mss);
		judge(sk, ca, now, mss, sample->is_app_limited, in_flight + sample->acked_sacked >= target - target / 8);
		target = target_of(ca, mss);
	}
	held = settle(pool, ca, tp->bytes_sent, now);
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
	if (held < (__s64)grant)
		grant = held > 0 ? held : 0;
	window = in_flight + grant / mss;
	path = bytes_in(ca->rate, ca->min_rtt) / mss;
	reach = burst / mss;
	/* A shortfall has left a gap in the clock, which would come around with every round trip. */
	if (ca->fell_back && reach > path / 8)
		reach = path / 8;
	reach += in_flight;
	wanted = path - (is_hurried ? 0 : path / 16) - (ca->is_clocked ? path / 16 : 0);
	if (window < LEAST_CLOCK || reach < wanted) {
		ca->is_clocked = 0;
		/* Faster only where there is something to catch up with, for this stream and for all: nothing is taken from
		 * the pool until the next acknowledgement, and that may be long. */
		is_late = shallow > (__s32)(is_hurried ? burst / 8 * 5 : 0) && held * 4 > depth_of(pool) * 3 && !ca->fell_back;
		sk->sk_pacing_rate = ca->rate + (is_late ? for_lateness(ca, mss) : 0);
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
	if (tp->snd_cwnd > in_flight) {
		ca->drawn = (tp->snd_cwnd - in_flight) * mss;
		held = __sync_fetch_and_sub(&pool->bytes, (__s64)ca->drawn);
		if (held >= (__s64)ca->drawn)
			return;
		/* Another processor was faster: what it left. */
		window = held > 0 ? held / mss : 0;
		__sync_fetch_and_add(&pool->bytes, (__s64)ca->drawn - (__s64)(window * mss));
		ca->drawn = window * mss;
		tp->snd_cwnd = in_flight + window;
	}
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
	.release = (void *)circuit_release,
	.ssthresh = (void *)circuit_ssthresh,
	.undo_cwnd = (void *)circuit_undo_cwnd,
	.cong_control = (void *)circuit_cong_control,
	.name = "circuit",
};

char LICENSE[] SEC("license") = "GPL";
