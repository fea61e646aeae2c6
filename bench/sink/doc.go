// Package sink counts what the load's frames became, at the far end, and drops them there: no
// receiver takes part.
//
// Each flow has the sequence number it expects next (RFC 4737's NextExp) and a window of bits of those that
// came, so lost, reordered and repeated frames are told apart exactly. Times are kept in histograms in the
// kernel, log-linear with 128 steps an octave, and read out as HdrHistograms.
package sink
