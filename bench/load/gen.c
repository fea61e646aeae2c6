//go:build ignore

/* The generator: an XDP program that is run on frames of its own, over and over, and either lets
 * one go, written anew, or drops it because none is due. */
#include "wire.h"

char _license[] SEC("license") = "GPL";

enum { IMIX_LEN = 48 };

/* What doesn't change in the life of a generator. */
volatile const __u32 flows, first_flow;
volatile const __u32 input_len; /* of the frames the kernel makes: longer than all that are sent */
volatile const __u32 skb_mode, targets; /* interfaces: flow f leaves by number f mod targets */
volatile const __u32 use_imix, imix_skip; /* imix_skip: further step when all flows had a turn */
volatile const __u16 sizes[IMIX_LEN];

/* What user space says. start is written last and lies ahead then, so a half-written
 * order is never acted upon. */
struct gen_order {
	__u64 start, end; /* CLOCK_MONOTONIC, ns */
	__u64 limit;      /* when even late frames aren't sent any more */
	__u64 period;     /* between frames, 2⁻²⁰ ns; 0: as fast as it goes */
	__u64 phase;      /* of the first frame behind start, ns */
	__u64 burst;      /* how late a frame may be, ns; 0: any time */
	__u32 run, pad;
};

/* What the program says. Written by the one CPU it runs on; user space clears it between runs. */
struct gen_state {
	__u64 turns; /* of the program */
	__u64 clock; /* when it was last looked at */
	__u64 spins; /* turns in which no frame was due */
	__u64 due;   /* frames, sent or skipped */
	__u64 offered, bytes, skipped, max_late, last, finished; /* last: when a frame went */
	__u32 flow, imix;
};

struct gen_flow {
	__u64 header[8];
	__u32 sum; /* of the IPv4 header; 0: it's IPv6 */
	__u32 seq;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gen_order);
} orders SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gen_state);
} states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set to the number of flows before loading */
	__type(key, __u32);
	__type(value, struct gen_flow);
} templates SEC(".maps");

/* The interfaces, for redirects of XDP frames and of socket buffers. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1); /* set to their number before loading */
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set to their number before loading */
	__type(key, __u32);
	__type(value, __u32);
} indices SEC(".maps");

static __always_inline __u32 target(__u32 flow)
{
	return targets > 1 ? flow % targets : 0;
}

/* look returns the time. As fast as it goes, frames leave together and nobody waits for one, so every eighth look at the
 * clock is enough, which is a tenth of what a frame costs; the times between are up to a microsecond early. */
static __always_inline __u64 look(const struct gen_order *o, struct gen_state *s)
{
	if (o->period || !(s->turns & 7))
		s->clock = bpf_ktime_get_ns();
	return s->clock;
}

/* due says whether a frame is to go now, and when it should have gone. */
static __always_inline int due(const struct gen_order *o, struct gen_state *s, __u64 now, __u64 *when)
{
	if (now < o->start)
		return 0;
	*when = now;
	if (!o->period) {
		s->finished = now >= o->end;
		return now < o->end;
	}
	*when = o->start + o->phase + (s->due * o->period >> 20);
	if (*when >= o->end || now >= o->limit) {
		s->finished = 1;
		return 0;
	}
	return now >= *when;
}

/* too_late skips a frame that the order doesn't want any more. */
static __always_inline int too_late(const struct gen_order *o, struct gen_state *s, __u64 late)
{
	if (!o->period)
		return 0;
	s->due++;
	if (!o->burst || late <= o->burst)
		return 0;
	s->skipped++;
	return 1;
}

/* next_size walks through the mix; the skip keeps a flow from always meeting the same sizes. */
static __always_inline __u32 next_size(struct gen_state *s)
{
	__u32 i = s->imix;

	if (!use_imix)
		return sizes[0];
	if (i >= IMIX_LEN)
		i = 0;
	s->imix = i + 1 + (s->flow == 0 ? imix_skip : 0);
	if (s->imix >= IMIX_LEN)
		s->imix -= IMIX_LEN;
	return sizes[i];
}

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* write makes the frame: of what it was before, nothing is left in its first 60 bytes. */
static __always_inline void write(struct wire_frame *f, struct gen_flow *t, __u32 size, __u16 run)
{
	__u64 *words = (__u64 *)f;

#pragma unroll
	for (int i = 0; i < WIRE_HEADER / 8; i++)
		words[i] = t->header[i];
	f->total_len = bpf_htons(size - WIRE_ETHER);
	f->id = bpf_htons(run);
	f->check = fold(t->sum + f->total_len + f->id);
	f->udp_len = bpf_htons(size - WIRE_UDP);
	f->udp_check = 0;
	f->seq = t->seq++;
}

/* write6 does so over IPv6, in the first 80 bytes. */
static __always_inline void write6(struct wire_frame6 *f, struct gen_flow *t, __u32 size, __u16 run)
{
	__u64 *words = (__u64 *)f;

#pragma unroll
	for (int i = 0; i < WIRE_HEADER6 / 8; i++)
		words[i] = t->header[i];
	f->label = bpf_htons(run);
	f->payload_len = f->udp_len = bpf_htons(size - WIRE_UDP6);
	f->udp_check = 0;
	f->seq = t->seq++;
}

SEC("xdp")
int generate(struct xdp_md *ctx)
{
	struct wire_frame *f = (void *)(long)ctx->data;
	struct wire_frame6 *f6 = (void *)f; /* every frame that the kernel makes has room for it */
	__u32 zero = 0, size, flow;
	struct gen_order *o = bpf_map_lookup_elem(&orders, &zero);
	struct gen_state *s = bpf_map_lookup_elem(&states, &zero);
	__u64 now, when, late;
	struct gen_flow *t;

	if (!o || !s || (void *)(f6 + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	now = look(o, s);
	s->turns++;
	if (!due(o, s, now, &when)) {
		s->spins++;
		return XDP_DROP;
	}
	late = now - when;
	if (too_late(o, s, late))
		return XDP_DROP;
	flow = s->flow;
	t = bpf_map_lookup_elem(&templates, &flow);
	if (!t)
		return XDP_ABORTED;
	size = next_size(s);
	if (!t->sum && size < WIRE_MIN_SIZE6)
		size = WIRE_MIN_SIZE6; /* of the mix */
	s->flow = flow + 1 < flows ? flow + 1 : 0;
	if (late > s->max_late)
		s->max_late = late;
	s->last = now;
	s->offered++;
	s->bytes += size;
	late = late < 0xffffffff ? late : 0xffffffff;
	if (t->sum) {
		write(f, t, size, o->run);
		f->flow = first_flow + flow;
		f->due = when;
		f->late = late;
	} else {
		write6(f6, t, size, o->run);
		f6->flow = first_flow + flow;
		f6->due = when;
		f6->late = late;
	}
	/* Always a change: it makes the kernel take length and metadata from here and not from the
	 * frame's last journey. */
	if (bpf_xdp_adjust_tail(ctx, (int)size - (int)input_len))
		return XDP_ABORTED;
	return skb_mode ? XDP_PASS : bpf_redirect_map(&devices, target(first_flow + flow), 0);
}

/* On lo, where the frames of a generator in skb mode come up. A socket's frames have a hash, so that interfaces with
 * several queues needn't look into them: these get one, too. */
SEC("tcx/ingress")
int divert(struct __sk_buff *skb)
{
	struct wire_stamp f;
	__u32 key, *index;

	if (!wire_read((void *)(long)skb->data, (void *)(long)skb->data_end, &f))
		return WIRE_TCX_NEXT;
	key = target(f.flow);
	index = bpf_map_lookup_elem(&indices, &key);
	if (!index)
		return WIRE_TCX_DROP;
	bpf_set_hash(skb, (f.flow + 1) * 0x9e3779b1U); /* the golden ratio: neighbours are far from each other */
	return bpf_redirect(*index, 0);
}
