// Package port defines one queue of one end, as the user datapath sees it.
//
// A port has two halves. A worker receives frames from an Rx in batches and
// sends them to a Tx in batches; the bytes stay where the kernel put them
// until the Tx has taken them:
//
//	Rx.Receive ──▶ []Frame ──▶ Tx.Send ──▶ Source.Release
//	(one worker)   (values)    (one worker  (any worker,
//	                            per Tx)      called by the Tx)
//
// Vocabulary, smallest to largest:
//
//	frame   one Ethernet frame, or one GSO frame standing for many
//	batch   up to MaxBatch frames of one Rx, in the order they arrived
//	source  the memory behind a batch, with the right to give it back
//	port    one queue of one end: an Rx, a Tx, or both
//
// Concurrency contract: an Rx and a Tx are each used by one goroutine at a
// time, and not necessarily the same one. Source.Bytes and Source.Release may be called
// by every worker at the same time for frames it holds. Close may be called
// only after the owner has stopped using the half.
package port

import (
	"errors"
	"os"
)

// MaxBatch is the most frames that move in one call: two AF_XDP copy-mode
// transmit budgets of 32, and a NAPI poll's weight.
const MaxBatch = 64

// VNetHdrLen is the size of struct virtio_net_hdr (virtio 1.2, 5.1.6), which
// carries unfinished checksums and segmentation between kernels.
const VNetHdrLen = 10

// MaxFrameLen is the longest frame that a port may carry: a 64-KiB GSO frame
// with its Ethernet header and two VLAN tags.
const MaxFrameLen = 65536 + 14 + 8

// Sentinel errors of Receive and of the constructors.
var (
	// ErrDown says that the interface went down. It may come up again; the port then
	// works on without being reopened. If it is deleted instead, FD need not tell.
	ErrDown = errors.New("interface is down")
	// ErrGone says that the interface or its namespace was deleted. Only Close is left.
	ErrGone = errors.New("interface is gone")
	// ErrNoBuffer says that the next frame needs an Arena buffer and none is free. The
	// frame waits where it is, and FD will not tell: call Receive again in a
	// later turn, instead of sleeping. It is some worker's turn to release what it holds.
	ErrNoBuffer = errors.New("no free frame buffer")
	// ErrClosed says that the port was closed.
	ErrClosed = os.ErrClosed
)

// Flags of a Frame.
const (
	// VNet: a valid virtio_net_hdr stands in the VNetHdrLen bytes before the frame.
	VNet = 1 << iota
	// Buffered: the bytes are in an Arena buffer (Slot), not in the port's ring.
	Buffered
)

// Frame says where a received frame is. It holds no pointer, so batches and
// rings of it cost the collector nothing.
type Frame struct {
	Off   uint64 // where the frame starts; only its Source gives this a meaning
	Len   uint32 // bytes of the frame, tags included, virtio_net_hdr not
	Hash  uint32 // RSS hash, set by the worker that received it
	Slot  uint32 // ring slot, buffer or UMEM chunk, for its Source
	Flags uint32
}

// Source is the memory behind a batch of frames.
type Source interface {
	// Bytes returns the frame, preceded by its virtio_net_hdr when f.Flags has VNet.
	// borrowed: valid until f is released.
	Bytes(f *Frame) []byte
	// Release gives the frames back, in any order, from any worker. by is the
	// ID of the calling worker.
	Release(by int, b []Frame)
}

// Rx is the receiving half of a port.
type Rx interface {
	Source
	// FD is the descriptor that becomes readable, edge-triggered, when Receive
	// may have something to return.
	FD() int
	// Receive fills b with the frames that have arrived, at most len(b), and never blocks.
	// Fewer than len(b) means that nothing more is there now: the next frame
	// makes FD ready again. Frames come with an error only as ErrDown, ErrGone or
	// ErrNoBuffer, after the last of them.
	//
	// Call it once a second also while FD is silent: what no descriptor tells (a
	// deletion while the interface was down, a kernel ring that stopped) is found then.
	Receive(b []Frame) (int, error)
	// Stats adds up what was lost before Receive could see it. Any goroutine may call it.
	Stats() RxStats
	// Close frees the half. All frames must have been released.
	Close() error
}

// RxStats counts frames that reached the port and were lost in front of Receive,
// since the port was opened.
type RxStats struct {
	Drops Drops
}

// Tx is the transmitting half of a port.
type Tx interface {
	// Send takes all frames of b, which came from src, in order, and hands each
	// to the kernel or drops it; then each is released, or was moved. It never
	// blocks for longer than a bounded number of retries.
	// What became of the frames is added to t.
	Send(src Source, b []Frame, t *Tally)
	// Queued is the number of frames that were taken and have not left yet. Any
	// goroutine may call it.
	Queued() int
	// Close frees the half.
	Close() error
}

// Tally is what became of frames: those that left, and those dropped, by reason.
type Tally struct {
	Frames uint64 // left
	Bytes  uint64 // of these, without virtio_net_hdr
	Drops  Drops
}

// Worker is what a port learns of the worker it is opened for.
type Worker struct {
	ID    int    // what Release is called with
	Arena *Arena // the worker's buffers for frames that fit no ring slot
}

// Opener opens the ports of one end. The pool calls it on the worker's own
// thread, so that memory is first touched on the CPU that uses it.
type Opener interface {
	OpenRx(w Worker) (Rx, error)
	OpenTx(w Worker) (Tx, error)
}

// Spreader is an Opener whose frames the kernel can spread over several receiving
// halves, by the pool's own hash and table: half i, the i-th that was opened, gets the frames
// of worker i's buckets. A flow is then received by one half only, as without it.
type Spreader interface {
	Opener
	// Spread says that OpenRx will be called n times, once for each of the workers 0 … n-1 in turn,
	// before any of these halves is used. It holds until all of them are closed.
	Spread(n int) Spreading
}

// Spreading says what a frame is that another half than its flow's receives.
type Spreading uint8

const (
	// Single: there will be one half, as without Spread.
	Single Spreading = iota
	// Strict: the kernel places all frames, but any may be misplaced while the interface goes
	// down or up. Those have lost their place in their flow: they are to be dropped (RxMisplaced).
	Strict
	// Loose: the kernel places the frames whose sender left that to it. Another sender's flow can come
	// to another half, and stays there: it is to be handed over.
	Loose
)
