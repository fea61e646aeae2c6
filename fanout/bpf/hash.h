/* The flow key and its hash: rss/flowkey.go, rss/toeplitz.go and rss/hasher.go, bit for bit. */
#pragma once

#include "parse.h"
#include "xxhash.h"

struct epair_endpoint {
	__u64 hi, lo; /* address; IPv4 in lo */
	__u64 port;
};

/* less compares endpoints as the byte strings of address and port, without a
 * branch: which is the smaller is chance. */
static __always_inline __u64 less64(__u64 a, __u64 b)
{
	return ((~a & b) | (~(a ^ b) & (a - b))) >> 63;
}

static __always_inline __u64 differs64(__u64 a, __u64 b)
{
	__u64 d = a ^ b;

	return (d | -d) >> 63;
}

static __always_inline __u64 less(const struct epair_endpoint *a, const struct epair_endpoint *b)
{
	__u64 port = (a->port - b->port) >> 63;
	__u64 lo = less64(a->lo, b->lo) | (~differs64(a->lo, b->lo) & port);

	return (less64(a->hi, b->hi) | (~differs64(a->hi, b->hi) & lo)) & 1;
}

static __always_inline void swap_if(__u64 on, __u64 *a, __u64 *b)
{
	__u64 x = (*a ^ *b) & -on;

	*a ^= x;
	*b ^= x;
}

/* order puts the smaller endpoint first. */
static __always_inline void order(struct epair_endpoint *src, struct epair_endpoint *dst)
{
	__u64 on = less(dst, src);

	swap_if(on, &src->hi, &dst->hi);
	swap_if(on, &src->lo, &dst->lo);
	swap_if(on, &src->port, &dst->port);
}

/* The key is built in its bounds by put: n counts what is there. */
static __always_inline __u8 *key_at(struct epair_scratch *s, __u32 n)
{
	asm volatile("%0 &= 63" : "+r"(n));
	return s->key + n;
}

static __always_inline void put_addr(struct epair_scratch *s, const struct epair_endpoint *e, int is6)
{
	__u8 *k = key_at(s, s->key_len);

	if (is6) {
		*(epair_u64 *)k = bpf_cpu_to_be64(e->hi);
		*(epair_u64 *)(k + 8) = bpf_cpu_to_be64(e->lo);
		s->key_len += 16;
	} else {
		*(epair_u32 *)k = bpf_htonl(e->lo);
		s->key_len += 4;
	}
}

static __always_inline void put_port(struct epair_scratch *s, const struct epair_endpoint *e)
{
	*(epair_u16 *)key_at(s, s->key_len) = bpf_htons(e->port);
	s->key_len += 2;
}

static __always_inline void fill_ip(const struct epair_hasher *h, struct epair_scratch *s, __u32 set)
{
	struct epair_endpoint src = {}, dst = {};
	int is6 = s->flow.type & 1;

	if (set & EPAIR_ADDRS) {
		const __u8 *a = at(s, s->flow.addr);

		if (is6) {
			src.hi = LOAD64(a);
			src.lo = LOAD64(a + 8);
			dst.hi = LOAD64(a + 16);
			dst.lo = LOAD64(a + 24);
		} else {
			src.lo = LOAD32(a);
			dst.lo = LOAD32(a + 4);
		}
	}
	if (set & EPAIR_PORTS) {
		const __u8 *p = at(s, s->flow.l4);

		src.port = LOAD16(p);
		dst.port = LOAD16(p + 2);
	}
	if (h->symmetric)
		order(&src, &dst);
	if (set & EPAIR_SRC)
		put_addr(s, &src, is6);
	if (set & EPAIR_DST)
		put_addr(s, &dst, is6);
	if (set & EPAIR_SPORT)
		put_port(s, &src);
	if (set & EPAIR_DPORT)
		put_port(s, &dst);
}

static __always_inline void fill_mac(const struct epair_hasher *h, struct epair_scratch *s)
{
	const __u8 *m = at(s, s->flow.l2);
	__u64 x = (__u64)LOAD32(m) << 16 | LOAD16(m + 4), y = (__u64)LOAD16(m + 6) << 32 | LOAD32(m + 8);
	__u32 etype = LOAD16(at(s, s->flow.l3 - 2));

	if (h->symmetric)
		swap_if(less64(y, x), &x, &y);
	if (etype < MIN_ETHER_TYPE)
		etype = 0;
	*(epair_u64 *)s->key = bpf_cpu_to_be64(x << 16 | y >> 32);
	*(epair_u32 *)(s->key + 8) = bpf_htonl(y);
	*(epair_u16 *)(s->key + 12) = bpf_htons(etype);
	s->key_len = 14;
}

static __always_inline void fill_raw(struct epair_scratch *s)
{
	for (int i = 0; i < ETHER_LEN - 1; i++)
		if (i < s->len)
			s->key[i] = s->frame[i];
	s->key_len = s->len;
}

/* epair_fill makes the key of s->flow. */
__noinline int epair_fill(const struct epair_hasher *h, struct epair_scratch *s)
{
	if (!h || !s)
		return 0;
	__builtin_memset(s->key, 0, sizeof(s->key));
	s->key_len = 0;
	if (s->flow.type == EPAIR_RAW)
		fill_raw(s);
	else if (s->flow.type == EPAIR_MAC)
		fill_mac(h, s);
	else if (s->flow.type < EPAIR_NUM_TYPES)
		fill_ip(h, s, h->fields[s->flow.type]);
	return 0;
}

/* toeplitz4 and toeplitz8 hash bytes of a key from position i on; they are the
 * bytes of w, most significant one first. */
static __always_inline __u32 toeplitz4(const struct epair_hasher *h, int i, __u32 w)
{
	return h->toeplitz[i][w >> 24] ^ h->toeplitz[i + 1][w >> 16 & 0xff] ^
	       h->toeplitz[i + 2][w >> 8 & 0xff] ^ h->toeplitz[i + 3][w & 0xff];
}

static __always_inline __u32 toeplitz8(const struct epair_hasher *h, int i, __u64 w)
{
	return toeplitz4(h, i, w >> 32) ^ toeplitz4(h, i + 4, w);
}

/* sum_toeplitz runs to the next multiple of four: bytes behind the key are 0 and add nothing. */
static __always_inline __u32 sum_toeplitz(const struct epair_hasher *h, const struct epair_scratch *s)
{
	__u32 hash = 0;

	for (int i = 0; i < EPAIR_MAX_KEY_LEN; i += 4) {
		if (i >= s->key_len)
			break;
		hash ^= toeplitz4(h, i, LOAD32(s->key + i));
	}
	return hash;
}

static __always_inline __u32 sum_xxhash(const struct epair_scratch *s)
{
	const epair_u64 *w = (const epair_u64 *)s->key;
	__u32 n = s->key_len, i = 0;
	__u64 acc = XXH_P5 + n;

	if (n >= 32) {
		acc = xxh_stripe(w[0], w[1], w[2], w[3], n);
		i = 32;
	}
	for (int round = 0; round < 3 && i + 8 <= n; round++, i += 8)
		acc = xxh_8(acc, *(const epair_u64 *)(s->key + i));
	if (i + 4 <= n) {
		acc = xxh_4(acc, *(const epair_u32 *)(s->key + i));
		i += 4;
	}
	for (int round = 0; round < 3 && i < n; round++, i++)
		acc = xxh_1(acc, s->key[i & 63]);
	return xxh_fold(acc);
}

/* epair_sum hashes the key. */
__noinline int epair_sum(const struct epair_hasher *h, struct epair_scratch *s)
{
	if (!h || !s)
		return 0;
	return h->func == EPAIR_TOEPLITZ ? sum_toeplitz(h, s) : sum_xxhash(s);
}
