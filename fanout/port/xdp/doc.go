// Package xdp is the port on AF_XDP sockets: the kernel copies a frame into
// memory that both ends of a pair share, and from there on only descriptors move.
//
//	end a, queue q                       UMEM                     end b, queue q
//	                             one per pair: equal chunks
//	fill        ◀── free chunks ── pool ◀── completion
//	rx          ──▶ Rx.Receive ──▶ batch ──▶ Tx.Send ──▶ tx        (and the same from b to a)
//
// Vocabulary, smallest to largest:
//
//	chunk       a piece of the UMEM; it has room for one frame
//	descriptor  where in the UMEM a frame is, and its length
//	ring        descriptors that one side produces and the other consumes
//	queue       one queue of a device: fill and rx ring, tx and completion ring
//	end         all queues of a device that frames can arrive on, and one per sender
//	pair        both ends and their UMEM
//
// A chunk is in exactly one place. The build tag epairdebug keeps the place of each
// and stops the program at the first that is in two; in every build Pair.Close
// counts them.
//
//	place      who takes it there                next
//	pool       Tx (completions), Release         receiving, held
//	receiving  Rx (fill ring)                    held, by the kernel and Receive
//	held       Receive, or Send for a copy       sending, pool
//	sending    Send (tx ring)                    pool, by the kernel and the completion ring
//
// What a device must be like:
//
//   - It has a transmit queue per sender: the kernel sends nothing, and says nothing, on a queue
//     that isn't there. Open refuses that, and the kernel lets nobody take a queue away later. Frames are
//     received on all its receive queues, among which the chunks are divided: one is best, as
//     one Rx reads them all. A veth for n senders is best made with n transmit queues and one receive queue
//     outside, and the reverse inside.
//   - veth takes a native XDP program only if it has as many receive queues as
//     its peer has transmit queues, and only up to an MTU of 3506.
//   - Whoever sends into it finishes checksums, segments and tags itself: XDP shows neither an
//     unfinished checksum nor a tag that is kept beside the frame. On the inner end of a veth
//     that is `ethtool -K DEV tx off tso off txvlan off tx-vlan-stag-hw-insert off`;
//     segmentation by GSO stays possible, it is done before.
//   - What a Tx sends into a veth is delivered like any socket's frame: unlike frames that an XDP
//     program redirects, it needs no NAPI at the peer.
//
// Sources: Documentation/networking/af_xdp.rst, net/xdp/xsk.c, net/xdp/xsk_queue.h and
// drivers/net/veth.c of Linux 6.18.
package xdp
