package xdp

// place is where a chunk is.
type place uint32

const (
	inPool      place = iota // free
	inReceiving              // on a fill or rx ring, or the kernel's between the two
	inHeld                   // in a batch, or on a ring between workers
	inSending                // on a tx or completion ring, or the kernel's between the two
)
