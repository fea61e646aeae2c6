//go:build ignore

/* The programs that all crossings of a pool share: its workers, the markers that follow
 * frames through every queue, and those that note what the kernel loses. */
#include "meta.h"

#include <bpf/bpf_tracing.h>

#define ENETDOWN 100 /* of <errno.h> */

/* By index in epair_devs: frames that a worker had to drop, as the device is gone. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} epair_gone SEC(".maps");

/* epair_work runs on a worker's CPU for each frame of its queue. */
SEC("xdp.frags/cpumap")
int epair_work(struct xdp_md *ctx)
{
	struct epair_cross_meta *m = cross_meta(ctx);
	__u32 cpu = bpf_get_smp_processor_id();
	struct epair_queue *q = bpf_map_lookup_elem(&epair_queues, &cpu);

	if (!m || !q)
		return XDP_ABORTED;
	__u32 port = m->port;
	struct epair_stamp s;
	__u64 *gone;

	if (m->marker) {
		q->marker = m->marker;
	} else if (epair_read_meta(&m->fence, &s)) {
		struct epair_queue *lane = lane_of(port, s.bucket);

		*(volatile __u64 *)&q->out = m->number; /* by nobody else */
		if (lane)
			__sync_fetch_and_add(&lane->out, 1);
	}
	if (bpf_redirect_map(&epair_devs, port, 0) == XDP_REDIRECT)
		return XDP_REDIRECT;
	gone = m->marker ? 0 : bpf_map_lookup_elem(&epair_gone, &port);
	if (gone)
		(*gone)++;
	return XDP_DROP;
}

/* The next markers. Written by Go. */
struct epair_order {
	__u32 number;	/* of this round of markers */
	__u32 cpus;	/* one to each port by the worker of each, if it has one */
	__u32 ports[2]; /* where they leave */
	__u32 next;
};

volatile struct epair_order epair_now;

/* epair_send_marker makes each frame of a test run a marker: through the queues of all workers in
 * turn, and through the ring behind each. The kernel uses frames again with what was done to them, so
 * one may have metadata. */
SEC("xdp.frags")
int epair_send_marker(struct xdp_md *ctx)
{
	struct epair_cross_meta *m = make_meta(ctx);

	if (!m)
		return XDP_ABORTED;
	__u32 n = epair_now.next++, second = n >= epair_now.cpus, cpu = second ? n - epair_now.cpus : n;

	__builtin_memset(m, 0, sizeof(*m));
	m->number = cpu;
	m->port = epair_now.ports[second & 1];
	m->marker = epair_now.number;
	return bpf_redirect_map(&epair_cpus, cpu, 0);
}

/* epair_on_poll follows each NAPI poll. All that polls before it had in their hands is in the stack. */
SEC("tp_btf/napi_poll")
int BPF_PROG(epair_on_poll, const void *napi, int work, int budget)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct epair_clock *c = bpf_map_lookup_elem(&epair_polls, &cpu);

	if (c)
		*(volatile __u64 *)&c->now += work < budget ? 2 : 1;
	return 0;
}

/* Of the kernel's structures, what tells a device from others. */
struct net {
	__u64 net_cookie;
} __attribute__((preserve_access_index));

struct net_device {
	int ifindex;
	struct {
		struct net *net;
	} nd_net;
} __attribute__((preserve_access_index));

struct epair_device {
	__u64 net_cookie;
	__u64 ifindex;
};

/* What the kernel did with frames, and lost. */
struct epair_losses {
	__u64 sent;	/* into the device; counted while epair_count_sent is set, and with losses */
	__u64 ring;	/* on the way into the device: its ring is full */
	__u64 down;	/* likewise: it, or its peer, is down, or takes no frames from XDP */
	__u64 dead;	/* after they came in by the device: the other one is down */
	__u64 redirect; /* likewise: not fit for the other one */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1);
	__type(key, struct epair_device);
	__type(value, struct epair_losses);
} epair_lost SEC(".maps");

static __always_inline struct epair_losses *lost(const struct net_device *dev)
{
	struct epair_device d = {.net_cookie = dev->nd_net.net->net_cookie, .ifindex = (__u32)dev->ifindex};

	return bpf_map_lookup_elem(&epair_lost, &d);
}

/* Whether there is a device of which it matters what was sent. Written by Go. */
volatile __u32 epair_count_sent;

/* Each call of a driver's ndo_xdp_xmit by a device map (bq_xmit_all in kernel/bpf/devmap.c): up to 16 frames. A veth
 * takes as many as its ring has room for, or none, with an error, if its peer doesn't poll. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(epair_on_xmit, const struct net_device *from, const struct net_device *to, int sent, int drops, int err)
{
	struct epair_losses *l = drops > 0 || epair_count_sent ? lost(to) : 0;

	if (!l)
		return 0;
	l->sent += sent;
	if (err < 0)
		l->down += drops;
	else
		l->ring += drops;
	return 0;
}

/* A redirect that the helper promised and xdp_do_redirect couldn't keep; also in a worker, where dev is
 * still the one by which the frame came in. */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(epair_on_error, const struct net_device *dev, const void *prog, const void *target, int err)
{
	struct epair_losses *l = lost(dev);

	if (l && err == -ENETDOWN)
		l->dead++;
	else if (l)
		l->redirect++;
	return 0;
}

char _license[] SEC("license") = "GPL";
