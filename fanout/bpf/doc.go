// Package bpf repeats package rss in the kernel: programs hash a frame as rss does, to
// the bit, and look its bucket up.
//
// # C
//
// One concern a file, each on top of the one before:
//
//	consts.h    rss's numbers
//	maps.h      what programs share: epair_hash, epair_table, epair_scratch
//	parse.h     which flow a frame is (rss/parse.go)
//	tunnel.h    what is inside a tunnel (rss/tunnel.go)
//	xxhash.h    XXH64
//	hash.h      flow key and hash (rss/flowkey.go, toeplitz.go, hasher.go)
//	quick.h     the short way of the common frames (rss/shortcut.go)
//	classify.h  one call for each hook
//	fence.h     when a bucket may move to another CPU (kern.Fence)
//	counters.h  what became of a pair's frames (kern.Counters)
//	steer.c     programs for TAP queues and packet fan-out
//	check.c     programs for tests
//
// A program includes classify.h and calls what fits its hook:
//
//	struct epair_class { __u32 hash, bucket, value; };  // value: of the bucket in epair_table
//
//	int epair_classify_xdp(struct xdp_md *ctx, struct epair_class *c)
//	int epair_classify_tc(struct __sk_buff *skb, struct epair_class *c)      // tc, tcx; both directions
//	int epair_classify_tap(struct __sk_buff *skb, struct epair_class *c)     // TUNSETSTEERINGEBPF
//	int epair_classify_packet(struct __sk_buff *skb, struct epair_class *c)  // PACKET_FANOUT_EBPF
//
// All return 0. They are inlined; some 250 bytes of the program's stack frame go to them, and 100
// below it. The general way behind the short one is in global functions, which the verifier
// checks by themselves. A program that stores c.hash (skb->hash, metadata) has all it needs to find the
// bucket again: c.bucket = c.hash & mask.
//
// Where the hook allows it, the common frames are hashed where they are, in
// their linear bytes: a copy by helper alone costs more than the hash. All other frames, and heads
// that aren't linear, are copied to epair_scratch.
//
// # Go
//
//	r, err := NewRSS(hasher, table)        // maps: hash, and bucket → worker
//	r.SetHasher(hasher); r.SetTable(table) // programs see it at once, nothing is reloaded
//	r.Maps(nil)                            // ebpf.CollectionOptions.MapReplacements of a program
//	t, err := NewTable(table); r.Maps(t)   // the same hash, another table: bucket → whatever the program needs
//	t.Set(table, values)                   // value of each worker's buckets
//
//	s, err := r.NewTapSteering(table)      // or NewPacketSteering
//	s.AttachTap(fd); s.SetIndex(table, indexOfWorker); s.Close()
//
// All of it needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; errors name the missing ones. Loading a
// program takes 10 to 20 ms and 28 KiB, a table 20 KiB. TAPs and groups whose indices agree can share one Steering.
//
// # What a program sees while Go writes
//
// SetHasher: the whole old configuration or the whole new one; none sees the old one when it has
// returned. A table: of each bucket the old value or the new one, whole. Its size never changes. Between the two
// nothing is promised, nor between a table and the order of queues it stands for: a frame may reach
// another worker than its own meanwhile, who hands it on.
//
// # Tags
//
// The kernel keeps a frame's outermost VLAN tag beside it. The hash is that of the frame as it was on
// the wire: the tag has its place in the window and in the count of tags.
package bpf
