/* XXH64 with seed 0, folded to 32 bits. Words are little-endian. */
#pragma once

#include "maps.h"

#define XXH_P1 0x9E3779B185EBCA87ULL
#define XXH_P2 0xC2B2AE3D27D4EB4FULL
#define XXH_P3 0x165667B19E3779F9ULL
#define XXH_P4 0x85EBCA77C2B2AE63ULL
#define XXH_P5 0x27D4EB2F165667C5ULL

static __always_inline __u64 rol64(__u64 x, int n)
{
	return x << n | x >> (64 - n);
}

static __always_inline __u64 xxh_round(__u64 acc, __u64 w)
{
	return rol64(acc + w * XXH_P2, 31) * XXH_P1;
}

static __always_inline __u64 xxh_merge(__u64 acc, __u64 lane)
{
	return (acc ^ xxh_round(0, lane)) * XXH_P1 + XXH_P4;
}

/* xxh_stripe starts with 32 bytes of a key of n bytes. */
static __always_inline __u64 xxh_stripe(__u64 w0, __u64 w1, __u64 w2, __u64 w3, __u64 n)
{
	__u64 a = xxh_round(XXH_P1 + XXH_P2, w0), b = xxh_round(XXH_P2, w1);
	__u64 c = xxh_round(0, w2), d = xxh_round(-XXH_P1, w3);
	__u64 acc = rol64(a, 1) + rol64(b, 7) + rol64(c, 12) + rol64(d, 18);

	return xxh_merge(xxh_merge(xxh_merge(xxh_merge(acc, a), b), c), d) + n;
}

static __always_inline __u64 xxh_8(__u64 acc, __u64 w)
{
	return rol64(acc ^ xxh_round(0, w), 27) * XXH_P1 + XXH_P4;
}

static __always_inline __u64 xxh_4(__u64 acc, __u32 w)
{
	return rol64(acc ^ w * XXH_P1, 23) * XXH_P2 + XXH_P3;
}

static __always_inline __u64 xxh_1(__u64 acc, __u8 b)
{
	return rol64(acc ^ b * XXH_P5, 11) * XXH_P1;
}

static __always_inline __u32 xxh_fold(__u64 acc)
{
	acc = (acc ^ acc >> 33) * XXH_P2;
	acc = (acc ^ acc >> 29) * XXH_P3;
	acc ^= acc >> 32;
	return acc >> 32 ^ acc;
}
