// Package rss decides which worker owns a flow: flow key from a frame, hash of
// the key, bucket = hash & (size-1), worker = table[bucket]. The words and the
// settings are those of ethtool -x, -X and -N rx-flow-hash.
//
// It is arithmetic only: no state, no clock, no I/O. Another implementation
// (the BPF programs) must give the same hash for every frame, so the two
// stages below are exact.
//
// # Stage 1: what the frame is
//
// No byte at or behind offset Window is looked at; a header that doesn't end
// in front of it counts as cut off. "Cut off" below means: the header ends behind the
// frame, the window or the length that the IP header states. Multi-byte
// values are in network order.
//
//	Ethernet   Shorter than 14 bytes: type raw. Up to MaxTags tags 0x8100, 0x88a8 and
//	           0x9100 are skipped. The ethertype is the one behind the last complete tag
//	           (so that of the tag itself, if what follows is cut off or one too many).
//	IPv4       Type mac, if fewer than 20 bytes are there, the version isn't 4, the header
//	           length (IHL) is below 20 bytes, or the total length is below it and not 0. Total
//	           length 0 states nothing (segmentation offload of more than 64 KiB).
//	           Any fragment, the first too, is ip4. Options are skipped.
//	IPv6       Type mac, if fewer than 40 bytes are there or the version isn't 6. Payload
//	           length 0 states nothing if the next header is hop-by-hop (jumbogram,
//	           RFC 2675), else it is 0. Up to MaxExts headers hop-by-hop (0), routing (43),
//	           fragment (44), AH (51) and destination options (60) are skipped; one more,
//	           or one cut off: ip6. A fragment header with offset or M bit makes it
//	           ip6; with neither (an atomic fragment, RFC 6946) it is skipped like the others:
//	           such a packet is whole, and shares its hash with the rest of its flow.
//	ports      TCP (6): tcp4, tcp6. UDP (17), UDP-Lite (136) and DCCP (33): udp4, udp6.
//	           SCTP (132): sctp4, sctp6. The first four bytes must be there, else ip4, ip6. All other
//	           protocols, ICMP too: ip4, ip6.
//	others     Type mac.
//
// With Config.Inner one tunnel is looked into; see tunnel.go for its rules.
//
// # Stage 2: the bytes that are hashed
//
//	raw        the frame as it is, 0 to 13 bytes
//	mac        destination (6), source (6), ethertype (2). An ethertype below 0x600 is a length
//	           (IEEE 802.3) and counts as 0: it differs from frame to frame of a flow.
//	*4, *6     source address (4 or 16), destination address (4 or 16), source
//	           port (2), destination port (2): Microsoft's order. Fields that aren't
//	           selected are left out, and what follows moves up: tcp4 with "sd" is
//	           Microsoft's 2-tuple hash. ip4 and ip6 have no ports.
//
// Symmetric: both endpoints are compared as byte strings, address first, then
// port, selected fields only; the smaller one stands first, as source. For mac
// the smaller address stands first. raw isn't ordered.
//
// The key is at most MaxKeyLen bytes long. Tags and tunnel identifiers are not
// in it: a tag that the kernel keeps beside the frame changes nothing.
//
// The hash is Toeplitz over these bytes, or XXH64 (seed 0) of them with its
// upper half XORed onto the lower.
package rss
