/* The fence: a bucket moves to another CPU only when nothing of it is in flight.
 *
 * Per bucket and direction there is one word, slot | count. Who takes a frame in
 * gets its slot by counting it (epair_fence_enter), and moves the bucket by compare-and-swap, which fails if
 * a frame was counted meanwhile. What is in flight is known per CPU that takes frames in: `in` is the
 * number of its last frame of the bucket, `out` the number of the last one that has come out
 * (epair_fence_leave). Frames of one CPU and slot can't overtake each other, so all are out when
 * in = out, also when some were lost on the way; and a slot may stand for several queues, one per
 * CPU (EPAIR_LOCAL).
 *
 * The frame carries bucket, CPU and the number's low bits with it: an skb in its hash and tc_index
 * (epair_mark_skb), an XDP frame in its metadata (struct epair_meta).
 *
 * Numbers are 64-bit; the bits that travel are completed from `out`. So that any number of losses in
 * a row can't confuse it, the sending side pulls `out` up behind it from time to time: a frame that
 * is 2^(bits-2) behind isn't in flight any more.
 *
 * A bucket that hasn't moved after EPAIR_FENCE_PATIENCE has its frames dropped, all but one per
 * EPAIR_FENCE_PROBE, whose arrival says that the old CPU is done even if the frame before it was lost.
 * When a CPU lost its last frame and sends none any more, EPAIR_FENCE_GIVE_UP ends the wait.
 *
 * Maps belong to one pair; Go sizes them (kern.NewFence). Programs run with bottom halves off. */
#pragma once

#include "consts.h"

#define EPAIR_LOCAL 0 /* slot: the CPU that takes the frame in; others are CPU number + 1 */
#define EPAIR_MAX_CPUS 256

#define EPAIR_FENCE_PATIENCE 5000000ULL	  /* ns */
#define EPAIR_FENCE_PROBE 1000000ULL	  /* ns */
#ifndef EPAIR_FENCE_GIVE_UP
#define EPAIR_FENCE_GIVE_UP 200000000ULL  /* ns */
#endif

#define EPAIR_SLOT_SHIFT 48
#define EPAIR_COUNT_MASK ((1ULL << EPAIR_SLOT_SHIFT) - 1)

/* What else must be true of a bucket of which nothing is in flight before it moves: for a program that calls
 * epair_fence_leave before its frames are where they go. */
#ifndef EPAIR_FENCE_SETTLED
#define EPAIR_FENCE_SETTLED(key) 1
#endif

/* And before EPAIR_FENCE_GIVE_UP counts: for a program that knows a queue to have frames of the bucket. */
#ifndef EPAIR_FENCE_MAY_GIVE_UP
#define EPAIR_FENCE_MAY_GIVE_UP(key) 1
#endif

struct epair_bucket {
	__u64 word;  /* slot:16 | count:48 */
	__u64 since; /* ns: when it was first found to have to move; 0: it need not */
	__u64 probe; /* ns: when a frame was last let through while it had to */
	__u64 pad;
};

/* By direction and bucket: dir * buckets + bucket. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct epair_bucket);
} epair_fence SEC(".maps");

/* By CPU, direction and bucket: each CPU writes lines of its own. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} epair_fence_in SEC(".maps");

/* By direction, bucket and CPU, each bucket in lines of its own. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} epair_fence_out SEC(".maps");

/* Written by Go before the program is loaded (kern.Fence.Prepare). */
struct epair_fence_layout {
	__u32 buckets;	   /* of the indirection table, a power of two */
	__u32 cpus;	   /* possible ones */
	__u32 stride;	   /* CPUs, rounded up to a cache line of epair_fence_out */
	__u32 bucket_bits; /* in the mark of an skb, as follows */
	__u32 cpu_bits;
	__u32 seq_bits;
	__u32 slot_bits;
	__u32 top[EPAIR_MAX_CPUS]; /* CPU → slot bits of the hash by which RPS takes a frame to that CPU */
};

const volatile struct epair_fence_layout epair_fence_layout;

/* What travels with a frame. */
struct epair_stamp {
	__u32 bucket;
	__u32 cpu; /* that took it in */
	__u32 seq; /* low bits of its number */
};

static __always_inline __u64 *fence_in(__u32 key, __u32 cpu)
{
	__u32 i = cpu * 2 * epair_fence_layout.buckets + key;

	return bpf_map_lookup_elem(&epair_fence_in, &i);
}

static __always_inline __u64 *fence_out(__u32 key, __u32 cpu)
{
	__u32 i = key * epair_fence_layout.stride + cpu;

	return bpf_map_lookup_elem(&epair_fence_out, &i);
}

/* fence_raise sets *p to v, unless it is more already. */
static __always_inline void fence_raise(__u64 *p, __u64 v)
{
	for (int i = 0; i < 32; i++) {
		__u64 old = *(volatile __u64 *)p;

		if ((__s64)(v - old) <= 0 || __sync_val_compare_and_swap(p, old, v) == old)
			return;
	}
}

/* fence_drained says whether nothing of a bucket is in flight. With give_up, what isn't out yet
 * counts as lost. */
static __noinline int fence_drained(__u32 key, __u32 give_up)
{
	for (__u32 cpu = 0; cpu < EPAIR_MAX_CPUS; cpu++) {
		if (cpu >= epair_fence_layout.cpus)
			break;
		__u64 *in = fence_in(key, cpu), *out = fence_out(key, cpu);

		if (!in || !out)
			return 0;
		__u64 n = *(volatile __u64 *)in;

		if (*(volatile __u64 *)out == n)
			continue;
		if (!give_up)
			return 0;
		fence_raise(out, n);
	}
	return 1;
}

/* fence_move moves a bucket if it can. It returns 0 if the frame at hand may go: to the slot that the
 * bucket then has. */
static __noinline int fence_move(__u32 key, __u32 want)
{
	struct epair_bucket *b = bpf_map_lookup_elem(&epair_fence, &key);

	if (!b)
		return -1;
	/* A full barrier: whoever counted a frame before this has raised its `in` already; pairs with epair_fence_enter. */
	__u64 word = __sync_fetch_and_add(&b->word, 0), now = bpf_ktime_get_ns(), since = b->since;

	if (fence_drained(key, since && now - since > EPAIR_FENCE_GIVE_UP && EPAIR_FENCE_MAY_GIVE_UP(key)) &&
	    EPAIR_FENCE_SETTLED(key)) {
		__u64 moved = (__u64)want << EPAIR_SLOT_SHIFT | (word & EPAIR_COUNT_MASK);

		if (__sync_val_compare_and_swap(&b->word, word, moved) == word) {
			b->since = 0;
			return 0;
		}
	}
	if (!since) {
		b->since = now;
		return 0;
	}
	if (now - since <= EPAIR_FENCE_PATIENCE)
		return 0;
	if (now - b->probe < EPAIR_FENCE_PROBE)
		return -1;
	b->probe = now;
	return 0;
}

/* epair_fence_enter counts a frame of a bucket whose CPU should be `want`, and returns its slot and, for
 * epair_fence_leave, its stamp; or -1 if it must be dropped (drop reason fence). */
static __always_inline int epair_fence_enter(__u32 dir, __u32 bucket, __u32 want, struct epair_stamp *s)
{
	__u32 key = (dir & 1) * epair_fence_layout.buckets + bucket, cpu = bpf_get_smp_processor_id();
	struct epair_bucket *b = bpf_map_lookup_elem(&epair_fence, &key);
	__u64 *in = fence_in(key, cpu);

	s->bucket = bucket;
	s->cpu = cpu;
	s->seq = 0;
	if (!b || !in)
		return -1;
	if (*(volatile __u64 *)&b->word >> EPAIR_SLOT_SHIFT != want) {
		if (fence_move(key, want))
			return -1;
	} else if (b->since) {
		b->since = 0;
	}
	__u64 n = *in + 1, behind = 1ULL << (epair_fence_layout.seq_bits - 2 & 31);

	*(volatile __u64 *)in = n;
	s->seq = n;
	/* A full barrier; pairs with fence_move. */
	__u64 word = __sync_fetch_and_add(&b->word, 1);

	if ((n & (behind - 1)) == 0) {
		__u64 *out = fence_out(key, cpu);

		if (out)
			fence_raise(out, n - behind);
	}
	return word >> EPAIR_SLOT_SHIFT;
}

/* epair_fence_leave notes that a frame has come out: it waits in no queue any more. */
static __always_inline void epair_fence_leave(__u32 dir, const struct epair_stamp *s)
{
	__u32 key = (dir & 1) * epair_fence_layout.buckets + s->bucket;

	if (s->bucket >= epair_fence_layout.buckets || s->cpu >= epair_fence_layout.cpus)
		return;
	__u64 *out = fence_out(key, s->cpu);

	if (!out)
		return;
	__u64 last = *(volatile __u64 *)out;
	__u32 unused = 32 - epair_fence_layout.seq_bits & 31;
	__s32 ahead = (__s32)((s->seq - (__u32)last) << unused) >> unused;

	if (ahead > 0)
		fence_raise(out, last + ahead);
}

/* The mark of an skb, 48 bits in hash and tc_index. The slot is in the highest bits of the hash, of which RPS
 * takes the remainder by multiplication; the lowest ones tell it from what others leave there.
 *
 *	hash      slot | bucket | …
 *	tc_index  … cpu | seq | EPAIR_MARK
 */
#define EPAIR_MARK 0xbU
#define EPAIR_MARK_BITS 4

static __always_inline void epair_mark_skb(struct __sk_buff *skb, __u32 slot, const struct epair_stamp *s)
{
	__u32 cpu = slot == EPAIR_LOCAL ? s->cpu : slot - 1, seq = s->seq & ((1ULL << (epair_fence_layout.seq_bits & 63)) - 1);
	__u64 v = epair_fence_layout.top[cpu & (EPAIR_MAX_CPUS - 1)];

	v = v << (epair_fence_layout.bucket_bits & 15) | s->bucket;
	v = v << (epair_fence_layout.cpu_bits & 15) | s->cpu;
	v = v << (epair_fence_layout.seq_bits & 63) | seq;
	v = v << EPAIR_MARK_BITS | EPAIR_MARK;
	skb->tc_index = v & 0xffff;
	bpf_set_hash(skb, v >> 16);
}

/* epair_unmark_skb takes the mark off and returns it, or 0 for a frame that has none. */
static __always_inline int epair_unmark_skb(struct __sk_buff *skb, struct epair_stamp *s)
{
	__u32 low = skb->tc_index;

	if ((low & ((1 << EPAIR_MARK_BITS) - 1)) != EPAIR_MARK)
		return 0;
	__u64 v = (__u64)skb->hash << 16 | low;

	v >>= EPAIR_MARK_BITS;
	s->seq = v & ((1ULL << (epair_fence_layout.seq_bits & 63)) - 1);
	v >>= epair_fence_layout.seq_bits & 63;
	s->cpu = v & ((1 << (epair_fence_layout.cpu_bits & 15)) - 1);
	v >>= epair_fence_layout.cpu_bits & 15;
	s->bucket = v & ((1 << (epair_fence_layout.bucket_bits & 15)) - 1);
	skb->tc_index = 0;
	bpf_set_hash_invalid(skb);
	return 1;
}

/* The mark of an XDP frame: what bpf_xdp_adjust_meta made room for, right in front of the frame. */
struct epair_meta {
	__u32 mark; /* EPAIR_META | bucket:12 | CPU:8 */
	__u32 seq;
};

#define EPAIR_META 0xeba00000U

static __always_inline void epair_mark_meta(struct epair_meta *m, const struct epair_stamp *s)
{
	m->mark = EPAIR_META | s->bucket << 8 | s->cpu;
	m->seq = s->seq;
}

/* epair_read_meta returns 0 for metadata that isn't ours. seq has 32 bits, of which epair_fence_leave
 * looks at as many as an skb carries. */
static __always_inline int epair_read_meta(const struct epair_meta *m, struct epair_stamp *s)
{
	if ((m->mark & 0xfff00000) != EPAIR_META)
		return 0;
	s->bucket = m->mark >> 8 & 0xfff;
	s->cpu = m->mark & 0xff;
	s->seq = m->seq;
	return 1;
}
