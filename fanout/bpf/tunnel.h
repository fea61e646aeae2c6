/* What is inside a tunnel: rss/tunnel.go, bit for bit. */
#pragma once

#include "parse.h"

/* What a tunnel carries: its ethertype in the upper half, its offset in the lower
 * one; 0 for nothing usable. */
#define CARRIES(etype, off) ((__u32)(etype) << 16 | (off))

static __always_inline __u32 skip_gre(struct epair_scratch *s, __u32 off, __u32 len)
{
	if (len < off + 4)
		return 0;
	const __u8 *h = at(s, off);
	__u32 flags = LOAD16(h);

	if (flags & 0x4007) /* routing, or a version other than 0 */
		return 0;
	/* checksum, key, sequence */
	off += 4 + 4 * ((flags >> 15 & 1) + (flags >> 13 & 1) + (flags >> 12 & 1));
	return CARRIES(LOAD16(h + 2), off);
}

/* skip_gtpu skips the rest of a GTP-U header, whose first eight bytes are there. */
static __always_inline __u32 skip_gtpu(struct epair_scratch *s, __u32 off, __u32 len, __u32 flags)
{
	__u32 end = off + 8, next = 0;

	if (flags & 0x07) { /* sequence, N-PDU number or extension: all four bytes are there */
		end += 4;
		if (len < end)
			return 0;
		if (flags & 0x04)
			next = *at(s, end - 1);
	}
	for (int n = 0; n <= EPAIR_MAX_GTP_EXTS; n++) {
		if (!next)
			break;
		if (n == EPAIR_MAX_GTP_EXTS || len <= end)
			return 0;
		__u32 size = *at(s, end) * 4;

		end += size;
		if (!size || len < end)
			return 0;
		next = *at(s, end - 1);
	}
	if (len <= end)
		return 0;
	__u32 version = *at(s, end) >> 4;

	if (version == 4)
		return CARRIES(ETHER_IP4, end);
	if (version == 6)
		return CARRIES(ETHER_IP6, end);
	return 0;
}

static __always_inline __u32 skip_udp_tunnel(struct epair_scratch *s, __u32 off, __u32 len)
{
	if (len < off + 16) /* UDP, and eight bytes that each of the tunnels has */
		return 0;
	const __u8 *h = at(s, off);
	__u32 port = LOAD16(h + 2);

	off += 8;
	if (port == PORT_VXLAN || port == PORT_VXLAN_LINUX)
		return h[8] & 0x08 ? CARRIES(ETHER_TEB, off + 8) : 0;
	if (port == PORT_GENEVE)
		return h[8] >> 6 == 0 ? CARRIES(LOAD16(h + 10), off + 8 + (h[8] & 0x3f) * 4) : 0;
	if (port == PORT_GTPU && h[8] >> 4 == 3 && h[9] == 0xff) /* version 1, T-PDU */
		return skip_gtpu(s, off, len, h[8]);
	return 0;
}

__noinline int epair_skip_tunnel(struct epair_scratch *s)
{
	if (!s)
		return 0;
	switch (s->flow.proto) {
	case PROTO_IP4:
		return CARRIES(ETHER_IP4, s->flow.l4);
	case PROTO_IP6:
		return CARRIES(ETHER_IP6, s->flow.l4);
	case PROTO_GRE:
		return skip_gre(s, s->flow.l4, s->flow.end);
	case PROTO_UDP:
		return skip_udp_tunnel(s, s->flow.l4, s->flow.end);
	}
	return 0;
}

/* epair_into_tunnel makes s->flow the flow inside the tunnel that it is, if it is one. */
__noinline int epair_into_tunnel(struct epair_scratch *s)
{
	if (!s || s->flow.type < EPAIR_IP4 || s->flow.note)
		return 0;
	__u32 carried = epair_skip_tunnel(s), etype = carried >> 16, off = carried & 0xffff;

	s->inner.l3 = off;
	s->inner.note = 0;
	if (etype == ETHER_TEB)
		epair_parse_ether(s, &s->inner, off, s->flow.end, 0);
	else if (etype == ETHER_IP4)
		epair_parse_ip4(s, &s->inner, s->flow.end);
	else if (etype == ETHER_IP6)
		epair_parse_ip6(s, &s->inner, s->flow.end);
	else
		return 0;
	if (s->inner.type >= EPAIR_IP4 || (etype == ETHER_TEB && !s->inner.note))
		s->flow = s->inner;
	return 0;
}
