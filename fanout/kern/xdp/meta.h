/* What the programs of a crossing and those that all crossings share agree on. */
#pragma once

#include "fence.h"

/* EPAIR_DEPTH is how many frames may wait for a worker before more are shed: what 200 000 a second need while
 * the worker's thread doesn't get its CPU for 15 ms, or 2 ms of work. A move of a bucket may need some
 * more (EPAIR_DEEPEST); the queue itself is longer than that (shared.go), so it never overflows. */
#define EPAIR_DEPTH 3072
#define EPAIR_DEEPEST 3584

/* What a frame carries between the program that takes it in and the one that lets it out. */
struct epair_cross_meta {
	__u64 number; /* in the worker's queue; 0: it took none */
	__u32 port;   /* where it leaves: index in epair_devs */
	__u32 marker; /* not 0: a marker; then number is the CPU that it went by */
	struct epair_meta fence;
};

/* What went into workers' queues, and what workers have taken out. */
struct epair_queue {
	__u64 in;
	__u64 pad0[7];
	__u64 out;
	__u64 marker; /* the last one taken out */
	__u64 pad1[6];
};

/* Of each worker's queue, by CPU number: `in` counts, `out` is the number of the frame that was taken out, behind
 * which a few by other CPUs may have smaller ones. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct epair_queue);
} epair_queues SEC(".maps");

#define EPAIR_LANES 4096

/* Of each bucket of each pair; both are counts. Some buckets share one, so that there need not be one for every
 * bucket of every pair: their frames wait for each other, at worst. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, EPAIR_LANES);
	__type(key, __u32);
	__type(value, struct epair_queue);
} epair_lanes SEC(".maps");

static __always_inline struct epair_queue *lane_of(__u32 port, __u32 bucket)
{
	__u32 i = (port * 128 + bucket) & (EPAIR_LANES - 1);

	return bpf_map_lookup_elem(&epair_lanes, &i);
}

/* Where frames leave: two devices per pair. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 8); /* struct bpf_devmap_val */
} epair_devs SEC(".maps");

/* The workers, by CPU number. */
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 8); /* struct bpf_cpumap_val */
} epair_cpus SEC(".maps");

/* epair_polls is a clock by CPU number, of the NAPI polls there: 2 further by one after which all frames are
 * in the stack, 1 further by one that used up its budget, behind which the kernel may still hand over the
 * last frames (gro_normal_list in __napi_poll, net/core/dev.c). */
struct epair_clock {
	__u64 now;
	__u64 pad[7];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct epair_clock);
} epair_polls SEC(".maps");

/* cross_meta returns a frame's metadata, if it's as long as ours. */
static __always_inline struct epair_cross_meta *cross_meta(struct xdp_md *ctx)
{
	struct epair_cross_meta *m = (void *)(long)ctx->data_meta;

	return (void *)(m + 1) <= (void *)(long)ctx->data ? m : 0;
}

/* strip_meta takes all metadata off a frame. */
static __always_inline int strip_meta(struct xdp_md *ctx)
{
	__u32 n = ctx->data - ctx->data_meta;

	return n ? bpf_xdp_adjust_meta(ctx, n) : 0;
}

/* make_meta gives a frame room for ours, instead of what it has. */
static __always_inline struct epair_cross_meta *make_meta(struct xdp_md *ctx)
{
	if (strip_meta(ctx) || bpf_xdp_adjust_meta(ctx, -(int)sizeof(struct epair_cross_meta)))
		return 0;
	return cross_meta(ctx);
}
