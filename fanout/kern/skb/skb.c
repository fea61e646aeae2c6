//go:build ignore

/* The programs of datapaths direct and tc. Each exists for both directions: _ab and _ba.
 *
 *	enter  tcx egress of an inner end: chooses the CPU and marks; RPS behind it goes by the mark
 *	leave  tcx ingress of the far inner end: takes the mark off
 *	hold   tcx egress of an inner end: drops, while a mode changes that the fence doesn't reach
 *	cross  tcx ingress of an outer side or existing device: hands over to the other one
 *	push   tcx ingress of an existing device: enter and cross
 *	pull   tcx ingress of an outer side whose far end is an existing device: leave and cross */
#include "classify.h"
#include "counters.h"
#include "fence.h"

/* enum tcx_action_base of <linux/bpf.h>, which older headers lack. */
#define TCX_NEXT -1
#define TCX_DROP 2

/* Settings that change while programs run, written by Go. */
struct skb_switch {
	__u32 local; /* every bucket's slot is EPAIR_LOCAL, whatever the table says */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct skb_switch);
} skb_switch SEC(".maps");

/* Where a direction's frames go to. */
struct skb_target {
	__u32 ifindex; /* in the namespace of the device that the frame came in by */
	__u8 mac[6];   /* of the inner end */
	__u8 how;      /* enum skb_how */
	__u8 pad;
};

enum skb_how {
	SKB_REDIRECT, /* by bpf_redirect */
	SKB_PEER,     /* by bpf_redirect_peer what is for mac: the inner end is up and in another namespace than the outer side */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct skb_target);
} skb_target SEC(".maps");

/* Whether leave counts, by direction; else a program in front of it does, on the same CPU. */
const volatile __u32 skb_count_tx[2];

static __always_inline void count_rx(struct epair_counters *n, struct __sk_buff *skb)
{
	n->rx++;
	n->rx_bytes += skb->len;
}

static __always_inline void count_tx(struct epair_counters *n, struct __sk_buff *skb)
{
	n->tx++;
	n->tx_bytes += skb->len;
}

/* enter returns other than 0 for a frame that must be dropped. */
static __always_inline int enter(struct __sk_buff *skb, __u32 dir, struct epair_counters *n)
{
	__u32 zero = 0;
	struct skb_switch *sw = bpf_map_lookup_elem(&skb_switch, &zero);
	struct epair_class c;
	struct epair_stamp s;

	if (!sw || epair_classify_tc(skb, &c)) {
		epair_count_drop(n, EPAIR_DROP_CLASSIFY);
		return -1;
	}
	int slot = epair_fence_enter(dir, c.bucket, *(volatile __u32 *)&sw->local ? EPAIR_LOCAL : c.value, &s);

	if (slot < 0) {
		epair_count_drop(n, EPAIR_DROP_FENCE);
		return -1;
	}
	epair_mark_skb(skb, slot, &s);
	return 0;
}

static __always_inline void leave(struct __sk_buff *skb, __u32 dir, struct epair_counters *n)
{
	struct epair_stamp s;

	if (epair_unmark_skb(skb, &s)) {
		epair_fence_leave(dir, &s);
		return;
	}
	n->unsteered++;
	n->unsteered_bytes += skb->len;
}

/* is_peers says whether a frame is for the inner end: only those get the same packet type from
 * bpf_redirect_peer as from a veth. */
static __always_inline int is_peers(struct __sk_buff *skb, const struct skb_target *t)
{
	__u8 *dst = (void *)(long)skb->data;

	if (t->how != SKB_PEER || (void *)(dst + 6) > (void *)(long)skb->data_end)
		return 0;
	return dst[0] == t->mac[0] && dst[1] == t->mac[1] && dst[2] == t->mac[2] &&
	       dst[3] == t->mac[3] && dst[4] == t->mac[4] && dst[5] == t->mac[5];
}

/* cross hands a frame over. */
static __always_inline int cross(struct __sk_buff *skb, __u32 dir, struct epair_counters *n, int may_peer)
{
	struct skb_target *t = bpf_map_lookup_elem(&skb_target, &dir);

	if (!t)
		return TCX_DROP;
	if (may_peer && is_peers(skb, t)) {
		n->peer++;
		return bpf_redirect_peer(t->ifindex, 0);
	}
	n->redirect++;
	return bpf_redirect(t->ifindex, 0);
}

static __always_inline int hold_prog(struct __sk_buff *skb, __u32 dir)
{
	struct epair_counters *n = epair_count(dir);

	if (!n)
		return TCX_DROP;
	epair_count_drop(n, EPAIR_DROP_FENCE);
	return TCX_DROP;
}

static __always_inline int enter_prog(struct __sk_buff *skb, __u32 dir)
{
	struct epair_counters *n = epair_count(dir);

	if (!n)
		return TCX_DROP;
	return enter(skb, dir, n) ? TCX_DROP : TCX_NEXT;
}

static __always_inline int leave_prog(struct __sk_buff *skb, __u32 dir)
{
	struct epair_counters *n = epair_count(dir);

	if (!n)
		return TCX_DROP;
	if (skb_count_tx[dir])
		count_tx(n, skb);
	leave(skb, dir, n);
	return TCX_NEXT;
}

static __always_inline int cross_prog(struct __sk_buff *skb, __u32 dir)
{
	struct epair_counters *n = epair_count(dir);

	if (!n)
		return TCX_DROP;
	count_rx(n, skb);
	count_tx(n, skb);
	return cross(skb, dir, n, 1);
}

static __always_inline int push_prog(struct __sk_buff *skb, __u32 dir)
{
	struct epair_counters *n = epair_count(dir);

	if (!n)
		return TCX_DROP;
	count_rx(n, skb);
	/* The CPU that hands it over is chosen behind this: leave counts tx. */
	return enter(skb, dir, n) ? TCX_DROP : cross(skb, dir, n, 0);
}

static __always_inline int pull_prog(struct __sk_buff *skb, __u32 dir)
{
	struct epair_counters *n = epair_count(dir);

	if (!n)
		return TCX_DROP;
	count_rx(n, skb);
	count_tx(n, skb);
	leave(skb, dir, n);
	return cross(skb, dir, n, 0);
}

#define BOTH(kind, where)                                                             \
	SEC("tcx/" where) int kind##_ab(struct __sk_buff *skb) { return kind##_prog(skb, 0); } \
	SEC("tcx/" where) int kind##_ba(struct __sk_buff *skb) { return kind##_prog(skb, 1); }

BOTH(hold, "egress")
BOTH(enter, "egress")
BOTH(leave, "ingress")
BOTH(cross, "ingress")
BOTH(push, "ingress")
BOTH(pull, "ingress")

char epair_license[] SEC("license") = "Dual BSD/GPL";
