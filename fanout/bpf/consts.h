/* Numbers of package rss, under their names there; a test compares them with the
 * originals. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

enum epair_bounds {
	EPAIR_WINDOW = 256, /* no byte of a frame at or behind this offset is looked at */
	EPAIR_MAX_TAGS = 8,
	EPAIR_MAX_EXTS = 8,
	EPAIR_MAX_KEY_LEN = 36,
	EPAIR_MAX_TABLE_SIZE = 4096,
};

enum epair_type {
	EPAIR_RAW,
	EPAIR_MAC,
	EPAIR_IP4, /* from here on, an odd one is IPv6 */
	EPAIR_IP6,
	EPAIR_TCP4, /* from here on, it has ports */
	EPAIR_TCP6,
	EPAIR_UDP4,
	EPAIR_UDP6,
	EPAIR_SCTP4,
	EPAIR_SCTP6,
	EPAIR_NUM_TYPES,
};

enum epair_fields {
	EPAIR_SRC = 1,
	EPAIR_DST = 2,
	EPAIR_SPORT = 4,
	EPAIR_DPORT = 8,
};

enum epair_func {
	EPAIR_TOEPLITZ,
	EPAIR_XXHASH,
};

#define EPAIR_ADDRS (EPAIR_SRC | EPAIR_DST)
#define EPAIR_PORTS (EPAIR_SPORT | EPAIR_DPORT)

#define EPAIR_MAX_GTP_EXTS 4

#define PACKET_OUTGOING 4 /* a pkt_type of <linux/if_packet.h> */

#define ETHER_LEN 14
#define IP4_LEN 20
#define IP6_LEN 40
#define MIN_ETHER_TYPE 0x600 /* a smaller one is a length, IEEE 802.3 */

#define ETHER_IP4 0x0800
#define ETHER_IP6 0x86dd
#define ETHER_Q 0x8100
#define ETHER_AD 0x88a8
#define ETHER_QINQ 0x9100
#define ETHER_TEB 0x6558

#define PROTO_HOP 0
#define PROTO_IP4 4
#define PROTO_TCP 6
#define PROTO_UDP 17
#define PROTO_DCCP 33
#define PROTO_IP6 41
#define PROTO_ROUTING 43
#define PROTO_FRAG 44
#define PROTO_GRE 47
#define PROTO_AH 51
#define PROTO_DEST 60
#define PROTO_SCTP 132
#define PROTO_UDPLITE 136

#define PORT_VXLAN 4789
#define PORT_VXLAN_LINUX 8472
#define PORT_GENEVE 6081
#define PORT_GTPU 2152
