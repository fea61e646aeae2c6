//go:build ignore

/* The sink: counts the load's frames and drops them, at XDP or at tcx ingress. */
#include "wire.h"

char _license[] SEC("license") = "GPL";

volatile const __u32 flows;

enum {
	BLOCKS = 32, /* of BLOCK sequence numbers each: a flow's window */
	BLOCK = 32,
	TRIES = 64,
	STEPS = 7,   /* bits behind a value's highest one that tell buckets apart */
	BUCKETS = 4096,
	SLOTS = 8192,
	SLOT_SHIFT = 23, /* 8.4 ms */
	GAP_NS = 2000, /* resolution of the longest gap: the shared time is written no more often */
	COARSE = 8,    /* frames of one CPU that a look at the clock stands for, if the times of single ones don't matter */
};

/* CPUs may meet in a flow. Each word is changed by compare-and-swap: no lock, no masked interrupts. */
struct sink_flow {
	__u64 block[BLOCKS]; /* high half: number + 1 of the block of sequence numbers that the low half is about; 0: none */
	__u32 next;	     /* RFC 4737's NextExp */
	__u32 pad;
};

/* One for each CPU, written by it only. */
struct sink_count {
	__u64 delivered, bytes, reordered, duplicated, stale, stray;
	__u64 first, last, gap;
};

struct sink_shared {
	__u32 run;
	__u32 coarse;
	__u64 origin; /* of the timeline: the first arrival */
	__u64 last;   /* arrival, to GAP_NS */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set to the number of flows before loading */
	__type(key, __u32);
	__type(value, struct sink_flow);
} tracks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sink_shared);
} shared SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sink_count);
} counts SEC(".maps");

/* Frames by the time since they were due, and by that since they were sent: mostly it's the same bucket. */
struct sink_bucket {
	__u64 due, sent;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, struct sink_bucket);
} buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} timeline SEC(".maps");

enum verdict { IN_ORDER, REORDERED, STALE, DUPLICATED };

/* note enters sequence number seq into its flow's window. It gives up, as if it were stale, when others were
 * faster TRIES times. */
static __always_inline enum verdict note(struct sink_flow *t, __u32 seq)
{
	__u32 number = seq / BLOCK + 1, bit = 1U << seq % BLOCK;
	__u64 *word = &t->block[seq / BLOCK % BLOCKS], old, now;

	for (int i = 0; i < TRIES; i++) {
		old = *(volatile __u64 *)word;
		if (old >> 32 == number) {
			if (old & bit)
				return DUPLICATED;
			now = old | bit;
		} else {
			if (old && (__s32)(number - (__u32)(old >> 32)) < 0)
				return STALE;
			now = (__u64)number << 32 | bit;
		}
		if (__sync_val_compare_and_swap(word, old, now) == old)
			return IN_ORDER;
	}
	return STALE;
}

/* judge places sequence number seq in its flow. */
static __always_inline enum verdict judge(struct sink_flow *t, __u32 seq)
{
	enum verdict v = note(t, seq);
	__u32 next;

	if (v != IN_ORDER)
		return v;
	for (int i = 0; i < TRIES; i++) {
		next = *(volatile __u32 *)&t->next;
		if ((__s32)(seq - next) < 0)
			return REORDERED;
		if (__sync_val_compare_and_swap(&t->next, next, seq + 1) == next)
			return IN_ORDER;
	}
	return STALE;
}

static __always_inline void track(struct sink_count *c, __u32 flow, __u32 seq, __u32 len)
{
	struct sink_flow *t = bpf_map_lookup_elem(&tracks, &flow);
	enum verdict v;

	if (!t) {
		c->stray++;
		return;
	}
	v = judge(t, seq);
	c->bytes += v != DUPLICATED ? len : 0;
	c->reordered += v == REORDERED || v == STALE;
	c->stale += v == STALE;
	c->duplicated += v == DUPLICATED;
}

/* high returns the number of v's highest set bit; v isn't 0. */
static __always_inline __u32 high(__u64 v)
{
	__u32 n = 0;

#pragma unroll
	for (int s = 32; s; s >>= 1)
		if (v >> s) {
			v >>= s;
			n += s;
		}
	return n;
}

/* bucket: below 2⁷ every value has its own, above every octave has 2⁷. */
static __always_inline __u32 bucket(__u64 v)
{
	__u32 octave, i;

	if (v < 1 << STEPS)
		return v;
	octave = high(v) - STEPS;
	i = (octave << STEPS) + (v >> octave);
	return i < BUCKETS ? i : BUCKETS - 1;
}

static __always_inline void tally(__u64 latency, __u32 late)
{
	__u32 due = bucket(latency), sent = due;
	struct sink_bucket *b = bpf_map_lookup_elem(&buckets, &due);

	if (!b)
		return;
	b->due++;
	if (late)
		sent = bucket(latency > late ? latency - late : 0);
	if (sent != due)
		b = bpf_map_lookup_elem(&buckets, &sent);
	if (b)
		b->sent++;
}

static __always_inline void clocks(struct sink_shared *sh, struct sink_count *c, __u64 now, __u32 frames)
{
	__u64 last = *(volatile __u64 *)&sh->last, origin = *(volatile __u64 *)&sh->origin, *n;
	__u32 slot;

	if (!c->first)
		c->first = now;
	c->last = now;
	if (!last || (__s64)(now - last) > GAP_NS) {
		last = __sync_lock_test_and_set(&sh->last, now);
		if (last && (__s64)(now - last) > (__s64)c->gap)
			c->gap = now - last;
	}
	if (!origin) {
		origin = __sync_val_compare_and_swap(&sh->origin, 0, now);
		if (!origin)
			origin = now;
	}
	slot = now > origin ? (now - origin) >> SLOT_SHIFT : 0;
	slot = slot < SLOTS ? slot : SLOTS - 1;
	n = bpf_map_lookup_elem(&timeline, &slot);
	if (n)
		*n += frames;
}

static __always_inline void count(const struct wire_stamp *f, __u32 len)
{
	__u32 zero = 0;
	struct sink_shared *sh = bpf_map_lookup_elem(&shared, &zero);
	struct sink_count *c = bpf_map_lookup_elem(&counts, &zero);
	__u64 now;

	if (!sh || !c)
		return;
	if (f->run != (__u16)sh->run || f->flow >= flows || f->len != len) {
		c->stray++;
		return;
	}
	track(c, f->flow, f->seq, len);
	c->delivered++;
	if (sh->coarse && (c->delivered & (COARSE - 1)) != 1)
		return;
	now = bpf_ktime_get_ns();
	tally(now > f->due ? now - f->due : 0, f->late);
	clocks(sh, c, now, sh->coarse ? COARSE : 1);
}

/* Frames that aren't a load's go on. Those whose bytes aren't in one piece are counted from a copy. */
SEC("xdp.frags")
int sink_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u8 copy[WIRE_MIN_SIZE6] __attribute__((aligned(8)));
	struct wire_stamp s;
	__u32 len = bpf_xdp_get_buff_len(ctx);

	if (!wire_read(data, end, &s)) {
		if (data + sizeof(copy) <= end || len < WIRE_MIN_SIZE)
			return XDP_PASS;
		__builtin_memset(copy, 0, sizeof(copy));
		if (bpf_xdp_load_bytes(ctx, 0, copy, len < sizeof(copy) ? WIRE_MIN_SIZE : sizeof(copy)) || !wire_read(copy, copy + sizeof(copy), &s))
			return XDP_PASS;
	}
	count(&s, len);
	return XDP_DROP;
}

SEC("tcx/ingress")
int sink_tcx(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u8 copy[WIRE_MIN_SIZE6] __attribute__((aligned(8)));
	struct wire_stamp s;

	if (!wire_read(data, end, &s)) {
		if (data + sizeof(copy) <= end || skb->len < WIRE_MIN_SIZE)
			return WIRE_TCX_NEXT;
		__builtin_memset(copy, 0, sizeof(copy));
		if (bpf_skb_load_bytes(skb, 0, copy, skb->len < sizeof(copy) ? WIRE_MIN_SIZE : sizeof(copy)) || !wire_read(copy, copy + sizeof(copy), &s))
			return WIRE_TCX_NEXT;
	}
	count(&s, skb->len);
	return WIRE_TCX_DROP;
}
