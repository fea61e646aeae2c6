/* The short way, which most frames take: untagged IP without options or extension headers, all
 * four fields. As rss's shortcuts it gives the same hash as the general way. */
#pragma once

#include "hash.h"

#define QUICK4_LEN (ETHER_LEN + IP4_LEN + 4)
#define QUICK6_LEN (ETHER_LEN + IP6_LEN + 4)

/* looks_ip4 and looks_ip6 take a frame's first 16 bytes. */
static __always_inline int looks_ip4(const __u8 *p)
{
	return LOAD32(p + 12) >> 8 == (ETHER_IP4 << 8 | 0x45);
}

static __always_inline int looks_ip6(const __u8 *p)
{
	return LOAD32(p + 12) >> 12 == (ETHER_IP6 << 4 | 6);
}

/* may_quick says whether frames with that protocol may take the short way. */
static __always_inline int may_quick(const struct epair_hasher *h, __u32 proto, int is6)
{
	if (proto == PROTO_TCP)
		return h->quick[EPAIR_TCP4 + is6];
	if (proto == PROTO_UDP)
		return h->quick[EPAIR_UDP4 + is6];
	return 0;
}

/* quick4 hashes QUICK4_LEN bytes that look like IPv4; false, if it isn't up to that. */
static __always_inline int quick4(const __u8 *p, const struct epair_hasher *h, __u32 *hash)
{
	__u32 total = LOAD16(p + 16);

	if (LOAD16(p + 20) & 0x3fff || (total < IP4_LEN + 4 && total != 0) || !may_quick(h, p[23], 0))
		return 0;
	__u64 addrs = LOAD64(p + 26);
	__u32 ports = LOAD32(p + ETHER_LEN + IP4_LEN);

	if (h->symmetric) {
		__u64 x = addrs >> 32 << 16 | ports >> 16, y = addrs << 32 >> 16 | (ports & 0xffff);

		swap_if((y - x) >> 63, &x, &y); /* both are below 2^48 */
		addrs = x >> 16 << 32 | y >> 16;
		ports = x << 16 | (y & 0xffff);
	}
	if (h->func == EPAIR_TOEPLITZ)
		*hash = toeplitz8(h, 0, addrs) ^ toeplitz4(h, 8, ports);
	else
		*hash = xxh_fold(xxh_4(xxh_8(XXH_P5 + 12, bpf_cpu_to_be64(addrs)), bpf_htonl(ports)));
	return 1;
}

/* quick6 does it for QUICK6_LEN bytes that look like IPv6. */
static __always_inline int quick6(const __u8 *p, const struct epair_hasher *h, __u32 *hash)
{
	if (LOAD16(p + 18) < 4 || !may_quick(h, p[20], 1))
		return 0;
	struct epair_endpoint src = {LOAD64(p + 22), LOAD64(p + 30), LOAD16(p + ETHER_LEN + IP6_LEN)};
	struct epair_endpoint dst = {LOAD64(p + 38), LOAD64(p + 46), LOAD16(p + ETHER_LEN + IP6_LEN + 2)};

	if (h->symmetric)
		order(&src, &dst);
	__u32 ports = src.port << 16 | dst.port;

	if (h->func == EPAIR_TOEPLITZ)
		*hash = toeplitz8(h, 0, src.hi) ^ toeplitz8(h, 8, src.lo) ^ toeplitz8(h, 16, dst.hi) ^
			toeplitz8(h, 24, dst.lo) ^ toeplitz4(h, 32, ports);
	else
		*hash = xxh_fold(xxh_4(xxh_stripe(bpf_cpu_to_be64(src.hi), bpf_cpu_to_be64(src.lo), bpf_cpu_to_be64(dst.hi),
						  bpf_cpu_to_be64(dst.lo), EPAIR_MAX_KEY_LEN), bpf_htonl(ports)));
	return 1;
}
