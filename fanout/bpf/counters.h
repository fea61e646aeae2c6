/* What became of a pair's frames, per CPU and direction. Each frame adds 1 to rx where
 * a program first sees it, and to one of tx and drops where one last does. */
#pragma once

#include "consts.h"

/* Reasons of programs; kern.dropNames has their names. */
enum epair_drop {
	EPAIR_DROP_FENCE,     /* to keep a flow in order while its bucket moves */
	EPAIR_DROP_SHED,      /* a worker's queue is too long to take more */
	EPAIR_DROP_REDIRECT,  /* the helper refused */
	EPAIR_DROP_PEER_DOWN, /* the far end is down */
	EPAIR_DROP_CLASSIFY,  /* the kernel didn't hand over the frame's bytes */
	EPAIR_NUM_DROPS,
};

struct epair_counters {
	__u64 rx, rx_bytes;
	__u64 tx, tx_bytes;
	__u64 unsteered;       /* of tx: no program saw the frame come in */
	__u64 unsteered_bytes; /* of tx_bytes */
	__u64 peer;	       /* handed over by bpf_redirect_peer */
	__u64 redirect;	       /* handed over by bpf_redirect or a device map */
	__u64 drops[EPAIR_NUM_DROPS];
};

/* By direction: 0 from a to b, 1 from b to a. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct epair_counters);
} epair_counters SEC(".maps");

/* epair_count returns a direction's counters of this CPU. They are only written by programs that
 * run with bottom halves off, so plain additions do. */
static __always_inline struct epair_counters *epair_count(__u32 dir)
{
	return bpf_map_lookup_elem(&epair_counters, &dir);
}

static __always_inline void epair_count_drop(struct epair_counters *c, enum epair_drop reason)
{
	c->drops[reason]++;
}
