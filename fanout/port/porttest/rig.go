// Package porttest is the conformance suite that every kind of port must pass.
//
// A Rig is two ends of one kind, with the far side of each: what the network
// behind it would see. The suite plays the worker in between.
//
//	A.Far ──▶ A.Rx ──▶ suite ──▶ B.Tx ──▶ B.Far
//	A.Far ◀── A.Tx ◀── suite ◀── B.Rx ◀── B.Far
//
// For ports on kernel interfaces, NewNS, NewVeth and DialFar build the world around them.
package porttest

import (
	"testing"
	"time"

	"github.com/epair-net/epair/fanout/port"
)

// Caps says what the ports under test can do.
type Caps struct {
	MaxFrame int  // longest frame without tag that crosses both ends: MTU + 14
	Ring     int  // frames that wait for a late worker; the suite's bursts stay below it
	GSO      bool // virtio_net_hdr is carried: unfinished checksums, frames up to 64 KiB
	Arena    bool // frames longer than 2 KiB need a buffer of Rig.Arena, so that it can run out
}

// Rig is two ends under test. The suite closes the halves, all else is cleaned up by whoever made it.
type Rig struct {
	A, B  End
	Arena *port.Arena // where all halves of the Rig were opened with
}

// End is one end: two halves of a port, both opened for worker 0, and the world behind it.
type End struct {
	Rx  port.Rx
	Tx  port.Tx
	Far Far
	// What can be done to the interface; nil when it can't be done to this kind.
	SetLink  func(up bool) error // sets the interface under the port down or up
	Delete   func() error        // deletes the interface
	DeleteNS func() error        // deletes the namespace in which Far is
}

// Far is the network behind an end.
//
// Concurrency contract: one goroutine may use Send and another Recv.
type Far interface {
	// Send puts a frame on the wire towards the port. ENOBUFS: it was not taken.
	Send(h *Hdr, frame []byte) error
	// Recv returns the next frame that left the port, with its tags, or nil
	// if there was none within wait. borrowed: valid until the next Recv.
	Recv(wait time.Duration) (h Hdr, frame []byte, err error)
	Close() error
}

// Factory opens a fresh Rig that is ready to forward.
type Factory func(t *testing.T) *Rig

// Run runs the suite.
func Run(t *testing.T, c Caps, open Factory) {
	cases := []struct {
		name string
		run  func(*testing.T, *lab)
	}{
		{"empty", testEmpty},
		{"bytes", testBytes},
		{"ethertypes", testEthertypes},
		{"vlan", testVLAN},
		{"batch", testBatch},
		{"conservation", testConservation},
		{"echo", testEcho},
		{"oversize", testOversize},
		{"release", testRelease},
		{"hold", testHold},
		{"no buffer", testNoBuffer},
		{"checksum", testChecksum},
		{"gso", testGSO},
		{"edges", testEdges},
		{"edges in small batches", testEdgesSmall},
		{"flap", testFlap},
		{"delete", testDelete},
		{"delete namespace", testDeleteNS},
		{"close", testClose},
		{"allocations", testAllocs},
	}
	for _, k := range cases {
		t.Run(k.name, func(t *testing.T) { k.run(t, newLab(t, c, open)) })
	}
	t.Run("leaks", func(t *testing.T) { testLeaks(t, c, open) })
}
