/* The load's frames, as package wire describes them. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

enum wire_bounds {
	WIRE_MIN_SIZE = 60,
	WIRE_MIN_SIZE6 = 80,
	WIRE_HEADER = 40,  /* whole 8-byte words of the header; the UDP checksum behind them is 0 */
	WIRE_HEADER6 = 64, /* likewise, and the two bytes behind it */
	WIRE_ETHER = 14,
	WIRE_UDP = 34,
	WIRE_UDP6 = 54,
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

/* The same over IPv6: the first 80 bytes. */
struct wire_frame6 {
	__u8 dst[6], src[6];
	__u16 type;
	__u16 version_class, label; /* the flow label's lower half: the run */
	__u16 payload_len;
	__u8 next, hops;
	__u16 saddr[8], daddr[8];
	__u16 sport, dport;
	__u16 udp_len, udp_check;
	__u16 flow;
	__u32 seq;
	__u64 due;
	__u32 late;
} __attribute__((packed, aligned(2)));

_Static_assert(sizeof(struct wire_frame6) == WIRE_MIN_SIZE6, "layout");

/* What a frame says of itself. */
struct wire_stamp {
	__u32 len; /* of the frame */
	__u16 run, flow;
	__u32 seq, late;
	__u64 due;
};

static __always_inline int wire_is4(const struct wire_frame *f)
{
	return f->type == bpf_htons(0x0800) && (__u8)f->version_tos == 0x45 && f->protocol == 17 &&
	       f->saddr[0] == bpf_htons(198 << 8 | 18) && f->daddr[0] == bpf_htons(198 << 8 | 19);
}

static __always_inline int wire_is6(const struct wire_frame6 *f)
{
	return f->type == bpf_htons(0x86dd) && f->next == 17 && f->saddr[0] == bpf_htons(0x2001) && f->saddr[1] == bpf_htons(2) &&
	       f->daddr[0] == bpf_htons(0x2001) && f->daddr[1] == bpf_htons(2);
}

/* wire_read reads the stamp of a frame whose bytes up to end are there, and says whether it was made by a load. */
static __always_inline int wire_read(void *data, void *end, struct wire_stamp *s)
{
	struct wire_frame *f = data;
	struct wire_frame6 *f6 = data;

	if ((void *)(f + 1) > end)
		return 0;
	if (wire_is4(f)) {
		s->len = bpf_ntohs(f->total_len) + WIRE_ETHER;
		s->run = bpf_ntohs(f->id);
		s->flow = f->flow;
		s->seq = f->seq;
		s->due = f->due;
		s->late = f->late;
		return 1;
	}
	if ((void *)(f6 + 1) > end || !wire_is6(f6))
		return 0;
	s->len = bpf_ntohs(f6->payload_len) + WIRE_UDP6;
	s->run = bpf_ntohs(f6->label);
	s->flow = f6->flow;
	s->seq = f6->seq;
	s->due = f6->due;
	s->late = f6->late;
	return 1;
}
