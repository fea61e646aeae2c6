/* One call that hashes a frame and looks its bucket up, one for each hook:
 *
 *	struct epair_class c;
 *	if (epair_classify_xdp(ctx, &c) == 0) … c.hash, c.bucket, c.value
 *
 * They look at linear bytes where the hook allows it and else load a copy, so frames with a
 * short linear head (from a packet ring, from frags) are hashed like any other. 0 is the
 * answer for every frame; other than 0 says that the kernel refused to hand over the frame's bytes,
 * which no kernel does; c is all 0 then. */
#pragma once

#include "quick.h"
#include "tunnel.h"

struct epair_class {
	__u32 hash;
	__u32 bucket;
	__u32 value; /* of the bucket in epair_table */
};

static __always_inline const struct epair_hasher *hash_config(void)
{
	__u32 zero = 0;
	void *inner = bpf_map_lookup_elem(&epair_hash, &zero);

	return inner ? bpf_map_lookup_elem(inner, &zero) : 0;
}

static __always_inline struct epair_scratch *scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&epair_scratch, &zero);
}

/* look_up completes c from c->hash. */
static __always_inline int look_up(struct epair_class *c)
{
	__u32 zero = 0;
	struct epair_table *t = bpf_map_lookup_elem(&epair_table, &zero);

	if (!t)
		return -1;
	c->bucket = c->hash & t->mask & (EPAIR_MAX_TABLE_SIZE - 1);
	c->value = *(volatile __u32 *)&t->value[c->bucket];
	return 0;
}

/* window returns how much of a frame of len bytes is looked at; a tag beside the
 * frame takes its place in it. */
static __always_inline __u32 window(__u64 len, __u32 tags)
{
	__u32 bound = EPAIR_WINDOW - 4 * tags;

	return len < bound ? len : bound;
}

/* hash_scratch goes the general way, from s->frame, s->len and s->tags. */
static __always_inline __u32 hash_scratch(const struct epair_hasher *h, struct epair_scratch *s)
{
	epair_parse_ether(s, &s->flow, 0, s->len, s->tags);
	if (h->inner)
		epair_into_tunnel(s);
	epair_fill(h, s);
	return epair_sum(h, s);
}

/* begin readies the scratch for a frame of which the first n bytes will be loaded. */
static __always_inline struct epair_scratch *begin(__u32 n, __u32 tags)
{
	struct epair_scratch *s = scratch();

	if (s) {
		s->len = n;
		s->tags = tags;
	}
	return s;
}

static __always_inline int slow_xdp(struct xdp_md *ctx, const struct epair_hasher *h, __u32 *hash)
{
	__u32 n = window(bpf_xdp_get_buff_len(ctx), 0);
	struct epair_scratch *s = begin(n, 0);

	if (!s || n == 0 || bpf_xdp_load_bytes(ctx, 0, s->frame, n))
		return -1;
	*hash = hash_scratch(h, s);
	return 0;
}

static __always_inline int epair_classify_xdp(struct xdp_md *ctx, struct epair_class *c)
{
	const struct epair_hasher *h = hash_config();

	__builtin_memset(c, 0, sizeof(*c));
	if (!h)
		return -1;
	if (!quick((void *)(long)ctx->data, (void *)(long)ctx->data_end, h, &c->hash) && slow_xdp(ctx, h, &c->hash))
		return -1;
	return look_up(c);
}

/* slow_skb is for hooks where an skb's data starts with the Ethernet header. */
static __always_inline int slow_skb(struct __sk_buff *skb, const struct epair_hasher *h, __u32 *hash)
{
	__u32 tags = skb->vlan_present & 1, n = window(skb->len, tags);
	struct epair_scratch *s = begin(n, tags);

	if (!s || n == 0 || bpf_skb_load_bytes(skb, 0, s->frame, n))
		return -1;
	*hash = hash_scratch(h, s);
	return 0;
}

/* epair_classify_tc is for tc and tcx, ingress and egress. */
static __always_inline int epair_classify_tc(struct __sk_buff *skb, struct epair_class *c)
{
	const struct epair_hasher *h = hash_config();

	__builtin_memset(c, 0, sizeof(*c));
	if (!h)
		return -1;
	if (!quick((void *)(long)skb->data, (void *)(long)skb->data_end, h, &c->hash) && slow_skb(skb, h, &c->hash))
		return -1;
	return look_up(c);
}

/* quick_copy tries the short way on a copy in s->frame, as a socket filter may not touch the
 * frame. */
static __always_inline int quick_copy(struct __sk_buff *skb, struct epair_scratch *s, const struct epair_hasher *h, __u32 *hash)
{
	if (bpf_skb_load_bytes_relative(skb, 0, s->frame, QUICK4_LEN, BPF_HDR_START_MAC))
		return 0;
	if (looks_ip4(s->frame))
		return quick4(s->frame, h, hash);
	if (!looks_ip6(s->frame) || bpf_skb_load_bytes_relative(skb, QUICK4_LEN, s->frame + QUICK4_LEN, QUICK6_LEN - QUICK4_LEN, BPF_HDR_START_MAC))
		return 0;
	return quick6(s->frame, h, hash);
}

/* epair_classify_tap is for the steering program of a TAP. */
static __always_inline int epair_classify_tap(struct __sk_buff *skb, struct epair_class *c)
{
	const struct epair_hasher *h = hash_config();
	struct epair_scratch *s = scratch();

	__builtin_memset(c, 0, sizeof(*c));
	if (!h || !s)
		return -1;
	if (!quick_copy(skb, s, h, &c->hash) && slow_skb(skb, h, &c->hash))
		return -1;
	return look_up(c);
}

/* slow_packet is for packet sockets. What comes in has its skb's data behind the Ethernet
 * header, which is linear always; the rest need not be. What goes out has it at the header. */
static __always_inline int slow_packet(struct __sk_buff *skb, const struct epair_hasher *h, __u32 *hash)
{
	if (skb->pkt_type == PACKET_OUTGOING)
		return slow_skb(skb, h, hash);
	__u32 tags = skb->vlan_present & 1, n = window((__u64)skb->len + ETHER_LEN, tags);
	struct epair_scratch *s = begin(n, tags);

	if (!s || n < ETHER_LEN || bpf_skb_load_bytes_relative(skb, 0, s->frame, ETHER_LEN, BPF_HDR_START_MAC))
		return -1;
	n -= ETHER_LEN;
	if (n != 0 && bpf_skb_load_bytes(skb, 0, s->frame + ETHER_LEN, n))
		return -1;
	*hash = hash_scratch(h, s);
	return 0;
}

/* epair_classify_packet is for the program of a packet fan-out group. */
static __always_inline int epair_classify_packet(struct __sk_buff *skb, struct epair_class *c)
{
	const struct epair_hasher *h = hash_config();
	struct epair_scratch *s = scratch();

	__builtin_memset(c, 0, sizeof(*c));
	if (!h || !s)
		return -1;
	if (!quick_copy(skb, s, h, &c->hash) && slow_packet(skb, h, &c->hash))
		return -1;
	return look_up(c);
}
