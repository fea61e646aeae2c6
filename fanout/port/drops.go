package port

// Reason says why a frame was dropped. Each drop has exactly one.
type Reason uint8

// The reasons of the user datapath. String gives their stable names.
const (
	RxRingFull   Reason = iota // the worker was late: the kernel found no free receive slot, or a TAP's queue full
	RxTruncated                // the kernel cut the frame off and kept no copy
	RxInvalid                  // the kernel handed over a descriptor that points nowhere, or no frame for want of a word for its kind of GSO
	RxMisplaced                // the kernel spread it to another worker than its flow's, as the link was going down or up
	HandoverFull               // the ring to the bucket's worker was full
	TxLinkDown                 // the far interface was down, or had no carrier
	TxGone                     // the far interface was deleted
	TxBusy                     // the far kernel queue stayed full through all retries
	TxRingFull                 // the transmit ring stayed full through all retries
	TxMTU                      // longer than the far interface takes
	TxInvalid                  // the kernel refused the frame's virtio_net_hdr
	TxError                    // any other error of the kernel
	NumReasons   = iota
)

var reasonNames = [NumReasons]string{
	"rx_ring_full", "rx_truncated", "rx_invalid", "rx_misplaced", "handover_full", "tx_link_down", "tx_gone",
	"tx_busy", "tx_ring_full", "tx_mtu", "tx_invalid", "tx_error",
}

// String returns the name by which statistics and metrics know the reason.
func (r Reason) String() string { return reasonNames[r] }

// Drops counts dropped frames by reason.
type Drops [NumReasons]uint64

// Add adds o to d.
func (d *Drops) Add(o *Drops) {
	for i := range d {
		d[i] += o[i]
	}
}

// Total returns the sum over all reasons.
func (d *Drops) Total() uint64 {
	var n uint64
	for _, v := range d {
		n += v
	}
	return n
}
