//go:build ignore

/* Programs for tests: each hook's classify, with its answer where prog.Run shows it. */
#include "classify.h"

/* The answer stands in front of the frame, in metadata that the test provides. */
static __always_inline int answer(const struct epair_class *c, void *meta, void *data)
{
	if (meta + sizeof(*c) > data)
		return -1;
	*(struct epair_class *)meta = *c;
	return 0;
}

SEC("xdp.frags")
int check_xdp(struct xdp_md *ctx)
{
	struct epair_class c;

	if (epair_classify_xdp(ctx, &c))
		return XDP_ABORTED;
	return answer(&c, (void *)(long)ctx->data_meta, (void *)(long)ctx->data) ? XDP_DROP : XDP_PASS;
}

/* bare_xdp is what check_xdp's cost is compared with. */
SEC("xdp.frags")
int bare_xdp(struct xdp_md *ctx)
{
	struct epair_class c = {};

	return answer(&c, (void *)(long)ctx->data_meta, (void *)(long)ctx->data) ? XDP_DROP : XDP_PASS;
}

/* check_cut sees only the first bytes of a frame, as many as the answer's place says. No
 * hook shows a program less than an Ethernet header; this does. */
SEC("xdp.frags")
int check_cut(struct xdp_md *ctx)
{
	void *meta = (void *)(long)ctx->data_meta;
	const struct epair_hasher *h = hash_config();
	struct epair_scratch *s = scratch();
	struct epair_class c = {};

	if (!h || !s || meta + sizeof(c) > (void *)(long)ctx->data)
		return XDP_ABORTED;
	__u32 n = window(bpf_xdp_get_buff_len(ctx), 0), cut = *(__u32 *)meta;

	s->tags = 0;
	if (n == 0 || bpf_xdp_load_bytes(ctx, 0, s->frame, n))
		return XDP_ABORTED;
	s->len = cut < n ? cut : n;
	c.hash = hash_scratch(h, s);
	look_up(&c);
	return answer(&c, (void *)(long)ctx->data_meta, (void *)(long)ctx->data) ? XDP_DROP : XDP_PASS;
}

/* check_tc puts its answer into cb. */
SEC("tc")
int check_tc(struct __sk_buff *skb)
{
	struct epair_class c;

	if (epair_classify_tc(skb, &c))
		return -1;
	skb->cb[0] = c.hash;
	skb->cb[1] = c.bucket;
	skb->cb[2] = c.value;
	return 0;
}

SEC("tc")
int bare_tc(struct __sk_buff *skb)
{
	skb->cb[0] = skb->cb[1] = skb->cb[2] = 0;
	return 0;
}

SEC("socket")
int bare_socket(struct __sk_buff *skb)
{
	return 0;
}

/* check_packet and check_tap return the hash. */
SEC("socket")
int check_packet(struct __sk_buff *skb)
{
	struct epair_class c;

	epair_classify_packet(skb, &c);
	return c.hash;
}

SEC("socket")
int check_tap(struct __sk_buff *skb)
{
	struct epair_class c;

	epair_classify_tap(skb, &c);
	return c.hash;
}

/* check_seen counts the frames that a watching program saw, and has its last answer. */
struct check_seen {
	__u64 frames;
	struct epair_class class;
	__u32 nonlinear; /* data and data_end didn't hold all of it */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct check_seen);
} check_seen SEC(".maps");

static __always_inline void seen(const struct epair_class *c, void *data, void *end, __u32 len)
{
	__u32 zero = 0;
	struct check_seen *s = bpf_map_lookup_elem(&check_seen, &zero);

	if (!s)
		return;
	s->class = *c;
	s->nonlinear = data + (len & 0xffff) > end;
	__sync_fetch_and_add(&s->frames, 1);
}

SEC("xdp.frags")
int watch_xdp(struct xdp_md *ctx)
{
	struct epair_class c;

	if (epair_classify_xdp(ctx, &c))
		return XDP_ABORTED;
	seen(&c, (void *)(long)ctx->data, (void *)(long)ctx->data_end, bpf_xdp_get_buff_len(ctx));
	return XDP_PASS;
}

SEC("tc")
int watch_tc(struct __sk_buff *skb)
{
	struct epair_class c;

	if (epair_classify_tc(skb, &c) == 0)
		seen(&c, (void *)(long)skb->data, (void *)(long)skb->data_end, skb->len);
	return 0;
}

/* The numbers that must be those of package rss. */
struct {
	enum epair_bounds bounds;
	enum epair_type type;
	enum epair_fields fields;
	enum epair_func func;
	enum epair_quick quick;
} epair_contract;

char epair_license[] SEC("license") = "Dual BSD/GPL";
