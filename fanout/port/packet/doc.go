// Package packet is the port on AF_PACKET sockets: a network interface's frames
// in memory that kernel and worker share, with unfinished checksums and
// segmentation carried by a virtio_net_hdr.
//
//	end                              worker, per network namespace
//	Rx: one receive socket           Sender: one transmit ring, one socket for
//	    ring of 2-KiB slots              long and GSO frames, one for GSO frames
//	    queue of longer frames           that the kernel must segment
//	                                 Tx: an end, as seen by a Sender; no descriptor
//
// An end can have one Rx per worker instead: spread.go says how the kernel spreads its frames over
// them, and why each flow keeps its order.
//
// Sources: packet(7), Documentation/networking/packet_mmap.rst and net/packet/af_packet.c
// of Linux 6.18; virtio 1.2, 5.1.6.
package packet
