/* What the programs share: the hash, the indirection table, and scratch memory. */
#pragma once

#include "consts.h"

/* What of a flow type may take the short way (quick.h). */
enum epair_quick {
	EPAIR_QUICK_NONE,
	EPAIR_QUICK_ADDRS, /* both addresses and nothing else are hashed */
	EPAIR_QUICK_ALL,   /* both addresses and both ports */
};

/* The hash configuration, written by RSS.SetHasher. A program sees one whole
 * configuration or the next: SetHasher exchanges the inner map, and returns when no
 * program uses the old one any more. */
struct epair_hasher {
	__u32 toeplitz[EPAIR_MAX_KEY_LEN][256]; /* hash = XOR of toeplitz[i][key[i]] */
	__u8 fields[EPAIR_NUM_TYPES];		/* enum epair_fields, by enum epair_type */
	__u8 func;				/* enum epair_func */
	__u8 symmetric;
	__u8 inner;
	__u8 quick[EPAIR_NUM_TYPES];		/* enum epair_quick, by enum epair_type */
	__u8 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__uint(max_entries, 1);
		__type(key, __u32);
		__type(value, struct epair_hasher);
	});
} epair_hash SEC(".maps");

/* An indirection table, written by Table.Set through shared memory. Each value
 * changes as one word; mask never does. What a value means is the program's
 * affair: a worker, a CPU slot, a queue index. */
struct epair_table {
	__u32 mask; /* size - 1 */
	__u32 value[EPAIR_MAX_TABLE_SIZE];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct epair_table);
} epair_table SEC(".maps");

/* What the parser found; offsets are those of the frame. As rss's flow. */
struct epair_flow {
	__u16 l2;   /* Ethernet header */
	__u16 l3;   /* what follows the innermost ethertype */
	__u16 addr; /* source address */
	__u16 l4;   /* what follows the IP header and the skipped extension headers */
	__u16 end;  /* where the IP packet, the frame or the window ends */
	__u8 type;  /* enum epair_type */
	__u8 proto; /* of what starts at l4 */
	__u8 note;  /* there would be more, but for a reason */
	__u8 pad[3];
};

/* A frame on its way through the general parser. Programs run with bottom halves off and run
 * to completion, so one of these per CPU is enough. */
struct epair_scratch {
	__u8 frame[2 * EPAIR_WINDOW]; /* offsets are bounded to a window; reads may run over it */
	__u8 key[64];		      /* the flow key, 0 behind its end */
	__u32 len;		      /* of the frame, or the window */
	__u32 tags;		      /* tags that the kernel keeps beside the frame: 0 or 1 */
	__u32 key_len;
	struct epair_flow flow;
	struct epair_flow inner;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct epair_scratch);
} epair_scratch SEC(".maps");
