// Package scenario is what is done with a bench.Trial to answer one question each.
//
//	Throughput  how much passes when as much as possible is sent
//	Rates       up to which rate nothing, or hardly anything, is lost
//	Latency     how long frames take at parts of that rate
//	Switch      what a live change costs the frames that cross meanwhile
//	Pairs       what many pairs cost: time, memory, threads
//
// All block, all end early with their context, and return what was measured until then beside its error.
package scenario
