/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What our congestion controls read of the kernel's TCP. Only the fields that they use are named: where the
 * running kernel has each is found when a program is loaded (CO-RE), so that one build fits every kernel.
 */
#ifndef FARLINK_TCP_BPF_H
#define FARLINK_TCP_BPF_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef _Bool bool;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

enum bpf_map_type { BPF_MAP_TYPE_UNSPEC, BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_ARRAY };

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

struct net {
	__u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	__be32 skc_daddr;
	unsigned short skc_family;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
};

struct sock {
	struct sock_common __sk_common;
	unsigned long sk_max_pacing_rate;
	unsigned long sk_pacing_rate;
	__u32 sk_pacing_status;
};

/* include/net/inet_connection_sock.h; ICSK_CA_PRIV_SIZE */
struct inet_connection_sock {
	__u8 icsk_ca_state : 5;
	__u64 icsk_ca_priv[13];
};

/* include/linux/tcp.h */
struct tcp_sock {
	__u64 tcp_mstamp;
	__u64 bytes_sent;
	__u32 delivered;
	__u32 lost;
	__u32 mss_cache;
	__u32 packets_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	__u32 srtt_us;
	__u32 snd_cwnd;
	__u32 snd_cwnd_cnt;
	__u32 snd_cwnd_clamp;
	__u32 snd_ssthresh;
	__u32 snd_nxt;
	__u32 max_packets_out;
	__u8 is_cwnd_limited : 1;
};

/* include/net/tcp.h */
struct ack_sample {
	__u32 pkts_acked;
	__s32 rtt_us;
};

struct rate_sample {
	long rtt_us;
	__u32 acked_sacked;
	bool is_app_limited;
};

#pragma clang attribute pop

/* include/net/tcp.h; only handed on. */
enum tcp_ca_event { CA_EVENT_TX_START };

/* Members are found by their names; the kernel's others stay empty. */
struct tcp_congestion_ops {
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	void (*set_state)(struct sock *sk, __u8 new_state);
	__u32 (*undo_cwnd)(struct sock *sk);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	__u32 (*min_tso_segs)(struct sock *sk);
	__u32 (*sndbuf_expand)(struct sock *sk);
	/* As since Linux 6.10. */
	void (*cong_control)(struct sock *sk, __u32 ack, int flag, const struct rate_sample *sample);
	char name[16];
};

enum tcp_ca_state {
	TCP_CA_Open = 0,
	TCP_CA_Disorder = 1,
	TCP_CA_CWR = 2,
	TCP_CA_Recovery = 3,
	TCP_CA_Loss = 4,
};

/* The kernel's own, which it lends to such programs (net/ipv4/bpf_tcp_ca.c). */
extern __u32 tcp_slow_start(struct tcp_sock *tp, __u32 acked) __ksym;
extern void tcp_cong_avoid_ai(struct tcp_sock *tp, __u32 w, __u32 acked) __ksym;
extern __u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

/* The congestion control's own state of a connection. */
static __always_inline void *private_of(const struct sock *sk)
{
	return ((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static __always_inline struct tcp_sock *tcp_of(const struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

/* Bytes a segment carries. */
static __always_inline __u32 mss_of(const struct tcp_sock *tp)
{
	__u32 mss = tp->mss_cache;

	return mss ? mss : 536;
}

static __always_inline __u64 larger(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

static __always_inline __u64 smaller(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

static __always_inline __u8 state_of(const struct sock *sk)
{
	return BPF_CORE_READ_BITFIELD((struct inet_connection_sock *)sk, icsk_ca_state);
}

/* include/net/tcp.h: tcp_in_slow_start */
static __always_inline bool in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

/* include/net/tcp.h: tcp_is_cwnd_limited */
static __always_inline bool is_cwnd_limited(const struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return 1;
	return in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

#endif
