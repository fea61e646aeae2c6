/* The load's frames, as package wire describes them. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

enum wire_bounds {
	WIRE_MIN_SIZE = 60,
	WIRE_HEADER = 40, /* whole 8-byte words of the header; the UDP checksum behind them is 0 */
	WIRE_ETHER = 14,
	WIRE_UDP = 34,
};

/* What tcx programs return: older headers don't have them. */
enum { WIRE_TCX_NEXT = -1, WIRE_TCX_DROP = 2 };

/* A frame's first 60 bytes. Every field is aligned as C wants it. */
struct wire_frame {
	__u8 dst[6], src[6];
	__u16 type;
	__u16 version_tos, total_len;
	__u16 id, fragment;
	__u8 hops, protocol;
	__u16 check;
	__u16 saddr[2], daddr[2];
	__u16 sport, dport;
	__u16 udp_len, udp_check;
	__u16 flow;
	__u32 seq;
	__u64 due;
	__u32 late;
} __attribute__((packed, aligned(2)));

_Static_assert(sizeof(struct wire_frame) == WIRE_MIN_SIZE, "layout");

/* wire_ours says that a frame was made by a load. */
static __always_inline int wire_ours(const struct wire_frame *f)
{
	return f->type == bpf_htons(0x0800) && (__u8)f->version_tos == 0x45 && f->protocol == 17 &&
	       f->saddr[0] == bpf_htons(198 << 8 | 18) && f->daddr[0] == bpf_htons(198 << 8 | 19);
}
