//go:build ignore

/* The programs of one pair. Frames from a to b (direction 0):
 *
 *	inner a ── outer a: epair_in_a ──────────▶ device map ──▶ outer b ── inner b: epair_out_b
 *	                            └─▶ CPU map: epair_work ─▲
 *
 * An end without an inner side has its out program on the way into its device (epair_egress_b), while frames
 * carry something. */
#include "classify.h"

/* A frame that is out has been before the out program; the stack gets it a little later. */
static int settled(__u32 key);
#define EPAIR_FENCE_SETTLED settled

/* A thread of the kernel's, worker or ksoftirqd, may have to wait long for its CPU. Go doesn't: it sends markers. */
static int past_queue(__u32 key);
#define EPAIR_FENCE_MAY_GIVE_UP past_queue
#define EPAIR_FENCE_GIVE_UP 2000000000ULL /* ns */

#include "counters.h"
#include "meta.h"

/* What becomes of a frame that comes in. Written by Go. */
enum epair_gate {
	EPAIR_OPEN, /* it leaves at once, uncounted by the fence */
	EPAIR_HASH, /* it passes the fence, and leaves where its bucket is: at once, or by a worker */
};

#define EPAIR_TABLE (~0U)

volatile __u32 epair_gate;
volatile __u32 epair_spread; /* EPAIR_HASH: the slot of all buckets, or EPAIR_TABLE */
volatile __u32 epair_marks[2][EPAIR_MAX_CPUS]; /* the last marker that came out, by direction and CPU it went by */
__u32 epair_marked[2];			       /* how many did */

const volatile __u32 epair_ports[2]; /* indices in epair_devs, by direction */

/* What an end's user wants run on each frame behind the out program, by end: a program put into the array by its
 * identity, of type XDP with frags. While there is none, frames pass to the stack. With a constant index
 * an empty slot is one instruction that does nothing. */
struct epair_slot {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
};

struct epair_slot epair_next_a SEC(".maps"), epair_next_b SEC(".maps");

/* By direction, bucket and CPU, as epair_fence_out: when, by that CPU's clock of polls, the last frame of the
 * bucket was before the out program there, plus 1. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} epair_left SEC(".maps");

static __always_inline __u64 *left_at(__u32 key, __u32 cpu)
{
	__u32 i = key * epair_fence_layout.stride + cpu;

	return bpf_map_lookup_elem(&epair_left, &i);
}

static __always_inline __u64 *clock_of(__u32 cpu)
{
	struct epair_clock *c = bpf_map_lookup_elem(&epair_polls, &cpu);

	return c ? &c->now : 0;
}

/* settled says that what has come out of a bucket is in the stack: the NAPI polls in which it came out
 * are over, so nothing that comes by another CPU can be in front of it. */
static __noinline int settled(__u32 key)
{
	for (__u32 cpu = 0; cpu < EPAIR_MAX_CPUS; cpu++) {
		if (cpu >= epair_fence_layout.cpus)
			break;
		__u64 *left = left_at(key, cpu), *now = clock_of(cpu);

		if (!left || !now)
			return 0;
		__u64 then = *(volatile __u64 *)left;

		if (then && *(volatile __u64 *)now + 1 - then < 2)
			return 0;
	}
	return 1;
}

/* note_time is called before epair_fence_leave, whose atomic operation is the barrier that settled needs. */
static __always_inline void note_time(__u32 dir, __u32 bucket)
{
	__u32 cpu = bpf_get_smp_processor_id();
	__u64 *left = left_at((dir & 1) * epair_fence_layout.buckets + bucket, cpu), *now = clock_of(cpu);

	if (left && now)
		*(volatile __u64 *)left = *now + 1; /* 0: never */
}

struct xdp_buff {
	__u32 flags;
} __attribute__((preserve_access_index));

/* Linux 6.2. The verifier makes nothing of it: it's no call. */
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;

#define EPAIR_HAS_FRAGS 1 /* XDP_FLAGS_HAS_FRAGS of <net/xdp.h> */

/* frame_len returns a frame's length. A helper knows it for any frame, but where the kernel guards its returns (SRSO),
 * each call costs 20 ns: frames in one piece don't need it. */
static __always_inline __u32 frame_len(struct xdp_md *ctx)
{
	if (bpf_cast_to_kern_ctx) {
		struct xdp_buff *x = bpf_cast_to_kern_ctx(ctx);

		if (!(x->flags & EPAIR_HAS_FRAGS))
			return ctx->data_end - ctx->data;
	}
	return bpf_xdp_get_buff_len(ctx);
}

static __always_inline int drop(struct epair_counters *c, enum epair_drop reason)
{
	epair_count_drop(c, reason);
	return XDP_DROP;
}

/* let_out sends a frame to the far end's device. */
static __always_inline int let_out(struct epair_counters *c, __u32 dir)
{
	if (bpf_redirect_map(&epair_devs, epair_ports[dir], 0) != XDP_REDIRECT)
		return drop(c, EPAIR_DROP_PEER_DOWN); /* the device is gone */
	return XDP_REDIRECT;
}

/* is_past says that nothing of a bucket waits for its worker. What a worker has taken from its queue, it
 * has sent before another program runs on its CPU, as both have bottom halves off. */
static __always_inline int is_past(const struct epair_queue *lane)
{
	return *(volatile __u64 *)&lane->in == *(volatile __u64 *)&lane->out;
}

static __noinline int past_queue(__u32 key)
{
	__u32 buckets = epair_fence_layout.buckets, dir = key >= buckets;
	struct epair_queue *lane = lane_of(epair_ports[dir], key - dir * buckets);

	return !lane || is_past(lane);
}

static __always_inline __u64 waiting(const struct epair_queue *q)
{
	return *(volatile __u64 *)&q->in - *(volatile __u64 *)&q->out;
}

/* crowded says that a worker has too much to do for another frame. Nothing has
 * been counted then, and nothing was spent on the frame but its hash. */
static __always_inline int crowded(__u32 slot, __u64 depth)
{
	__u32 cpu = slot - 1;
	struct epair_queue *q = slot == EPAIR_LOCAL ? 0 : bpf_map_lookup_elem(&epair_queues, &cpu);

	return q && cpu != bpf_get_smp_processor_id() && waiting(q) >= depth;
}

/* hand_over gives a frame to the worker of a slot, or lets it out if that's us. */
static __always_inline int hand_over(struct xdp_md *ctx, struct epair_counters *c, __u32 dir, __u32 slot, const struct epair_stamp *s)
{
	__u32 cpu = slot - 1, port = epair_ports[dir];
	struct epair_cross_meta *m = make_meta(ctx);

	if (!m)
		return drop(c, EPAIR_DROP_REDIRECT);
	m->number = 0;
	m->port = port;
	m->marker = 0;
	epair_mark_meta(&m->fence, s);
	if (slot == EPAIR_LOCAL)
		return let_out(c, dir);
	struct epair_queue *q = bpf_map_lookup_elem(&epair_queues, &cpu), *lane = lane_of(port, s->bucket);

	if (!q || !lane)
		return drop(c, EPAIR_DROP_REDIRECT);
	/* The worker would let it out from this CPU too. */
	if (cpu == bpf_get_smp_processor_id() && is_past(lane))
		return let_out(c, dir);
	if (waiting(q) >= EPAIR_DEEPEST)
		return drop(c, EPAIR_DROP_SHED);
	if (bpf_redirect_map(&epair_cpus, cpu, 0) != XDP_REDIRECT)
		return drop(c, EPAIR_DROP_REDIRECT);
	m->number = __sync_fetch_and_add(&q->in, 1) + 1;
	__sync_fetch_and_add(&lane->in, 1);
	return XDP_REDIRECT;
}

/* steer lets a frame through the fence, to where its bucket is. */
static __always_inline int steer(struct xdp_md *ctx, struct epair_counters *c, __u32 dir)
{
	struct epair_class cl;
	struct epair_stamp s;

	if (epair_classify_xdp(ctx, &cl))
		return drop(c, EPAIR_DROP_CLASSIFY);
	__u32 spread = epair_spread, want = spread == EPAIR_TABLE ? cl.value : spread, key = dir * epair_fence_layout.buckets + cl.bucket;
	struct epair_bucket *b = bpf_map_lookup_elem(&epair_fence, &key);

	/* A bucket that has to move must come to the fence, which sees to it that it can. */
	if (b && *(volatile __u64 *)&b->word >> EPAIR_SLOT_SHIFT == want && crowded(want, EPAIR_DEPTH))
		return drop(c, EPAIR_DROP_SHED);
	int slot = epair_fence_enter(dir, cl.bucket, want, &s);

	if (slot < 0)
		return drop(c, EPAIR_DROP_FENCE);
	return hand_over(ctx, c, dir, slot, &s);
}

static __always_inline int take_in(struct xdp_md *ctx, __u32 dir)
{
	struct epair_counters *c = epair_count(dir);

	if (!c)
		return XDP_ABORTED;
	c->rx++;
	c->rx_bytes += frame_len(ctx);
	return epair_gate == EPAIR_OPEN ? let_out(c, dir) : steer(ctx, c, dir);
}

/* come_out is where frames are out: they wait in none of our queues any more, and nothing
 * of ours goes further with them. polled says that a NAPI poll runs it. */
static __always_inline int come_out(struct xdp_md *ctx, __u32 dir, int polled)
{
	struct epair_cross_meta *m = cross_meta(ctx);
	struct epair_counters *c = epair_count(dir);
	struct epair_stamp s;

	if (!c)
		return XDP_ABORTED;
	if (m && m->marker) {
		epair_marks[dir][m->number & (EPAIR_MAX_CPUS - 1)] = m->marker;
		__sync_fetch_and_add(&epair_marked[dir], 1);
		return XDP_DROP;
	}
	if (m && epair_read_meta(&m->fence, &s)) {
		if (polled)
			note_time(dir, s.bucket);
		epair_fence_leave(dir, &s);
	}
	if (strip_meta(ctx))
		return XDP_ABORTED;
	c->tx++;
	c->tx_bytes += frame_len(ctx);
	return XDP_PASS;
}

SEC("xdp.frags")
int epair_in_a(struct xdp_md *ctx)
{
	return take_in(ctx, 0);
}

SEC("xdp.frags")
int epair_in_b(struct xdp_md *ctx)
{
	return take_in(ctx, 1);
}

SEC("xdp.frags")
int epair_out_a(struct xdp_md *ctx)
{
	int verdict = come_out(ctx, 1, 1);

	if (verdict == XDP_PASS)
		bpf_tail_call(ctx, &epair_next_a, 0);
	return verdict;
}

SEC("xdp.frags")
int epair_out_b(struct xdp_md *ctx)
{
	int verdict = come_out(ctx, 0, 1);

	if (verdict == XDP_PASS)
		bpf_tail_call(ctx, &epair_next_b, 0);
	return verdict;
}

SEC("xdp.frags/devmap")
int epair_egress_a(struct xdp_md *ctx)
{
	return come_out(ctx, 1, 0);
}

SEC("xdp.frags/devmap")
int epair_egress_b(struct xdp_md *ctx)
{
	return come_out(ctx, 0, 0);
}

char _license[] SEC("license") = "GPL";
