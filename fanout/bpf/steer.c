//go:build ignore

/* Socket filters that say where the kernel puts a frame: into which queue of a TAP
 * (TUNSETSTEERINGEBPF) or which socket of a fan-out group (PACKET_FANOUT_EBPF). Their table maps
 * buckets to indices of queues or sockets; the kernel takes the remainder by how
 * many there are. */
#include "classify.h"

SEC("socket")
int steer_tap(struct __sk_buff *skb)
{
	struct epair_class c;

	epair_classify_tap(skb, &c);
	return c.value;
}

SEC("socket")
int steer_packet(struct __sk_buff *skb)
{
	struct epair_class c;

	epair_classify_packet(skb, &c);
	return c.value;
}

char epair_license[] SEC("license") = "Dual BSD/GPL";
