/* The short way, which most frames take: IP with up to two tags, without options or extension
 * headers, hashed by addresses, or addresses and ports. It gives the same hash as the
 * general way, or none. */
#pragma once

#include "hash.h"

#define QUICK4_LEN (ETHER_LEN + IP4_LEN + 4)
#define QUICK6_LEN (ETHER_LEN + IP6_LEN + 4)
#define QUICK_TAGS 2

/* looks_ip4 and looks_ip6 take a frame's first 16 bytes. */
static __always_inline int looks_ip4(const __u8 *p)
{
	return LOAD32(p + 12) >> 8 == (ETHER_IP4 << 8 | 0x45);
}

static __always_inline int looks_ip6(const __u8 *p)
{
	return LOAD32(p + 12) >> 12 == (ETHER_IP6 << 4 | 6);
}

/* quick4 hashes QUICK4_LEN bytes that look like IPv4; false, if it isn't up to that. */
static __always_inline int quick4(const __u8 *p, const struct epair_hasher *h, __u32 *hash)
{
	__u32 type = LOAD16(p + 20) & 0x3fff ? EPAIR_IP4 : type4(p[23]); /* fragments have no ports */
	__u32 total = LOAD16(p + 16), how = h->quick[type];

	if (how == EPAIR_QUICK_NONE || (total < IP4_LEN + 4 && total != 0))
		return 0;
	__u64 addrs = LOAD64(p + 26);
	__u32 ports = how == EPAIR_QUICK_ALL ? LOAD32(p + ETHER_LEN + IP4_LEN) : 0;

	if (h->symmetric) {
		__u64 x = addrs >> 32 << 16 | ports >> 16, y = addrs << 32 >> 16 | (ports & 0xffff);

		swap_if((y - x) >> 63, &x, &y); /* both are below 2^48 */
		addrs = x >> 16 << 32 | y >> 16;
		ports = x << 16 | (y & 0xffff);
	}
	if (h->func == EPAIR_TOEPLITZ) /* to which ports 0 add nothing */
		*hash = toeplitz8(h, 0, addrs) ^ toeplitz4(h, 8, ports);
	else if (how == EPAIR_QUICK_ALL)
		*hash = xxh_fold(xxh_4(xxh_8(XXH_P5 + 12, bpf_cpu_to_be64(addrs)), bpf_htonl(ports)));
	else
		*hash = xxh_fold(xxh_8(XXH_P5 + 8, bpf_cpu_to_be64(addrs)));
	return 1;
}

static __always_inline __u64 stripe6(const struct epair_endpoint *src, const struct epair_endpoint *dst, __u64 n)
{
	return xxh_stripe(bpf_cpu_to_be64(src->hi), bpf_cpu_to_be64(src->lo), bpf_cpu_to_be64(dst->hi),
			  bpf_cpu_to_be64(dst->lo), n);
}

/* quick6 does it for QUICK6_LEN bytes that look like IPv6. */
static __always_inline int quick6(const __u8 *p, const struct epair_hasher *h, __u32 *hash)
{
	__u32 proto = p[20], how = h->quick[type4(proto) + 1];

	if (how == EPAIR_QUICK_NONE || is_ext(proto) || LOAD16(p + 18) < 4)
		return 0;
	__u32 ports = how == EPAIR_QUICK_ALL ? LOAD32(p + ETHER_LEN + IP6_LEN) : 0;
	struct epair_endpoint src = {LOAD64(p + 22), LOAD64(p + 30), ports >> 16};
	struct epair_endpoint dst = {LOAD64(p + 38), LOAD64(p + 46), ports & 0xffff};

	if (h->symmetric) {
		order(&src, &dst);
		ports = src.port << 16 | dst.port;
	}
	if (h->func == EPAIR_TOEPLITZ)
		*hash = toeplitz8(h, 0, src.hi) ^ toeplitz8(h, 8, src.lo) ^ toeplitz8(h, 16, dst.hi) ^
			toeplitz8(h, 24, dst.lo) ^ toeplitz4(h, 32, ports);
	else if (how == EPAIR_QUICK_ALL)
		*hash = xxh_fold(xxh_4(stripe6(&src, &dst, 36), bpf_htonl(ports)));
	else
		*hash = xxh_fold(stripe6(&src, &dst, 32));
	return 1;
}

/* quick hashes the linear bytes of a frame. */
static __always_inline int quick(const void *data, const void *end, const struct epair_hasher *h, __u32 *hash)
{
	const __u8 *p = data;

	for (int tags = 0; tags <= QUICK_TAGS; tags++, p += 4) {
		if (p + QUICK4_LEN > (const __u8 *)end)
			return 0;
		if (looks_ip4(p))
			return quick4(p, h, hash);
		if (looks_ip6(p))
			return p + QUICK6_LEN > (const __u8 *)end ? 0 : quick6(p, h, hash);
		if (!is_tag(LOAD16(p + 12)))
			return 0;
	}
	return 0;
}
