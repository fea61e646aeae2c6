// Package xdp is the datapath xdp: XDP programs take the frames that come in by a pair's outer
// devices to the other one.
//
//	inner a ── outer a ─▶ in program ─▶ device map ─▶ outer b ── inner b ─▶ out program ─▶ stack
//	                          └─▶ CPU map ─▶ worker ─▲
//
//	inline  in program and device map, on the CPU that runs the receiving NAPI
//	pool    the table names the worker: this CPU, where the frame goes on at once, or another, whose
//	        queue (a CPU map's) takes it; frames that too many wait in front of are shed before that
//	poller  as inline, in threaded NAPIs, each pinned to one of the pool's CPUs
//
// # What it needs
//
// Linux 6.1 with BTF (tracing programs find what the kernel loses; xdp.frags: 5.18), CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and for
// poller CAP_SYS_NICE. The devices' drivers must have native XDP both ways (generic XDP can't send to them). The
// XDP hooks of the outer devices and of the inner sides are taken while the crossing lives: another's program
// there is refused, never replaced.
//
// Frames must be finished when they come: XDP carries bytes alone. So on inner sides checksum, segmentation and tag
// insertion by the device are off before New is called (epair.End.SetOffloads with CarryNothing), which New
// checks. Frames may be as long as the MTU allows, to 64 KiB: the programs take fragments.
//
// # Programs of the user's own
//
// The XDP hook of an inner side is taken by the out program, which has a slot for another: a program array of one entry,
// named epair_next, the only one of that name that the program on the interface uses. What is put there runs as
// if it were on the hook, for each frame that has come out: it is counted, and carries nothing of ours.
// It must be of type XDP with frags (SEC("xdp.frags")), or the kernel refuses it, and it decides what becomes of
// the frame: the ledger has it as delivered, whatever that is. With the slot empty, frames pass to the stack.
//
//	ip -d link show dev eth0                                            # … prog/xdp id 57
//	bpftool prog show id 57                                             # … map_ids 12,13,90; one is epair_next
//	bpftool map update id 90 key 0 0 0 0 value pinned /sys/fs/bpf/mine  # delete id 90 key 0 0 0 0: as before
//
// The slot goes with the crossing, and what is in it, too: at its end, or when the datapath changes. A change of
// mode leaves it. An empty slot costs 3 ns a frame.
//
// # Order
//
// Frames that one NAPI takes in leave in their order in every mode. While tables and modes change, the fence
// of bpf/fence.h keeps the order: a bucket moves when nothing of it is before an out program. An inner side with
// several receive queues has one ring per CPU: a flow whose sending thread migrates is in no better
// order than on a plain veth.
//
// # Ledger
//
// Rx is counted by the in program, Tx by the out program at the far inner side or, for an end without one,
// by xdp_devmap_xmit. The programs count what they drop; what the kernel drops in between is counted
// by programs at two tracepoints, each frame once:
//
//	fence      dropped to keep a flow in order, or its end's mode changes
//	shed       too many frames waited for the worker
//	ring_full  xdp_devmap_xmit: the ring into the far device was full
//	peer_down  xdp_devmap_xmit, xdp_redirect_err: the far device or its peer is down or gone
//	redirect   xdp_redirect_err: the far device takes no frame of that length
package xdp
