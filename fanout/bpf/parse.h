/* Which flow a frame belongs to: rss/parse.go and rss/tunnel.go, bit for bit.
 *
 * The functions that aren't inlined are verified each by itself (BPF global functions).
 * They keep what they find in memory, of which the verifier knows nothing, so
 * it needn't follow every combination of tags, headers and tunnels. */
#pragma once

#include "maps.h"

typedef __u16 __attribute__((__may_alias__)) epair_u16;
typedef __u32 __attribute__((__may_alias__)) epair_u32;
typedef __u64 __attribute__((__may_alias__)) epair_u64;

#define LOAD16(p) bpf_ntohs(*(const epair_u16 *)(p))
#define LOAD32(p) bpf_ntohl(*(const epair_u32 *)(p))
#define LOAD64(p) bpf_be64_to_cpu(*(const epair_u64 *)(p))

/* at returns the header at an offset that was found to be inside the window. The
 * compiler may know that, the verifier doesn't: hence the assembly. */
static __always_inline const __u8 *at(const struct epair_scratch *s, __u32 off)
{
	asm volatile("%0 &= 255" : "+r"(off));
	return s->frame + off;
}

static __always_inline int is_tag(__u32 etype)
{
	return etype == ETHER_Q || etype == ETHER_AD || etype == ETHER_QINQ;
}

static __always_inline int is_ext(__u32 proto)
{
	return proto == PROTO_HOP || proto == PROTO_ROUTING || proto == PROTO_FRAG || proto == PROTO_AH || proto == PROTO_DEST;
}

/* type4 returns the type of a whole IPv4 packet; IPv6 is one more. */
static __always_inline __u32 type4(__u32 proto)
{
	switch (proto) {
	case PROTO_TCP:
		return EPAIR_TCP4;
	case PROTO_UDP:
	case PROTO_UDPLITE:
	case PROTO_DCCP:
		return EPAIR_UDP4;
	case PROTO_SCTP:
		return EPAIR_SCTP4;
	}
	return EPAIR_IP4;
}

/* parse_ports widens an IP flow by its ports, if it has any. */
static __always_inline void parse_ports(struct epair_flow *f)
{
	__u32 wider = type4(f->proto) - EPAIR_IP4;

	if (wider && f->l4 + 4 > f->end)
		f->note = 1;
	else
		f->type += wider;
}

/* epair_parse_ip4 parses the packet at f->l3, in front of len. */
__noinline int epair_parse_ip4(struct epair_scratch *s, struct epair_flow *f, __u32 len)
{
	if (!s || !f)
		return 0;
	f->type = EPAIR_MAC;
	if (len < f->l3 + IP4_LEN) {
		f->note = 1;
		return 0;
	}
	const __u8 *h = at(s, f->l3);
	__u32 head_len = (h[0] & 0xf) * 4, total = LOAD16(h + 2);

	if (h[0] >> 4 != 4 || head_len < IP4_LEN || (total < head_len && total != 0)) {
		f->note = 1;
		return 0;
	}
	f->type = EPAIR_IP4;
	f->proto = h[9];
	f->addr = f->l3 + 12;
	f->l4 = f->l3 + head_len;
	f->end = len;
	if (total != 0 && f->l3 + total < len)
		f->end = f->l3 + total;
	if (LOAD16(h + 6) & 0x3fff) { /* more fragments, or an offset */
		f->note = 1;
		return 0;
	}
	parse_ports(f);
	return 0;
}

/* skip_ext moves f to what follows the extension header at f->l4, or notes why not. */
static __always_inline void skip_ext(struct epair_scratch *s, struct epair_flow *f)
{
	if (f->l4 + 8 > f->end) { /* none is shorter */
		f->note = 1;
		return;
	}
	const __u8 *h = at(s, f->l4);
	__u32 size = h[1] * 8 + 8;

	if (f->proto == PROTO_FRAG) {
		if (LOAD16(h + 2) & 0xfff9) { /* an offset, or more fragments */
			f->note = 1;
			return;
		}
		size = 8;
	} else if (f->proto == PROTO_AH) {
		size = h[1] * 4 + 8;
	}
	if (f->l4 + size > f->end) {
		f->note = 1;
		return;
	}
	f->proto = h[0];
	f->l4 += size;
}

/* epair_parse_ip6 parses the packet at f->l3, in front of len. */
__noinline int epair_parse_ip6(struct epair_scratch *s, struct epair_flow *f, __u32 len)
{
	if (!s || !f)
		return 0;
	f->type = EPAIR_MAC;
	if (len < f->l3 + IP6_LEN) {
		f->note = 1;
		return 0;
	}
	const __u8 *h = at(s, f->l3);
	__u32 payload = LOAD16(h + 4);

	if (h[0] >> 4 != 6) {
		f->note = 1;
		return 0;
	}
	f->type = EPAIR_IP6;
	f->proto = h[6];
	f->addr = f->l3 + 8;
	f->l4 = f->l3 + IP6_LEN;
	f->end = len;
	if ((payload != 0 || f->proto != PROTO_HOP) && f->l4 + payload < len)
		f->end = f->l4 + payload;
	for (int n = 0; n < EPAIR_MAX_EXTS && is_ext(f->proto) && !f->note; n++)
		skip_ext(s, f);
	if (is_ext(f->proto) || f->note) {
		f->note = 1;
		return 0;
	}
	parse_ports(f);
	return 0;
}

/* epair_parse_ether parses the frame that starts at l2 and ends in front of len. */
__noinline int epair_parse_ether(struct epair_scratch *s, struct epair_flow *f, __u32 l2, __u32 len, __u32 tags)
{
	if (!s || !f)
		return 0;
	f->l2 = l2;
	f->l3 = l2 + ETHER_LEN;
	f->note = 0;
	if (len < f->l3) {
		f->type = EPAIR_RAW;
		f->note = 1;
		return 0;
	}
	__u32 etype = LOAD16(at(s, f->l3 - 2));

	for (int n = 0; n < EPAIR_MAX_TAGS && is_tag(etype); n++) {
		if (n + tags == EPAIR_MAX_TAGS || len < f->l3 + 4)
			break;
		f->l3 += 4;
		etype = LOAD16(at(s, f->l3 - 2));
	}
	if (etype == ETHER_IP4)
		return epair_parse_ip4(s, f, len);
	if (etype == ETHER_IP6)
		return epair_parse_ip6(s, f, len);
	f->type = EPAIR_MAC;
	f->note = is_tag(etype); /* one too many, or cut off */
	return 0;
}
