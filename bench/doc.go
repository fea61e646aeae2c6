// Package bench measures what crosses a pair.
//
// With frames of its own, made and counted in the kernel, so that neither end is what is measured:
//
//	load.Gen ──▶ Topology: a pair, a bridge, … ──▶ sink.Sink
//	   └──────────────── Trial ────────────────────────┘      one load, one time, one result
//	                       ├ Calibrate                        what the load costs by itself
//	                       └ Search                           the rate without loss
//
// And with sockets like any user's: bulk TCP, small UDP datagrams, and request/response.
//
// All figures are taken at the far end: what was delivered, not what was sent.
// A socket belongs to the namespace in which it was created, whatever thread
// uses it later; only the creation runs inside.
package bench
