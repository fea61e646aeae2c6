package sink

// The object is compiled from C and committed, so that building needs no clang. `go generate` must
// give the same bytes again: no path of the machine gets into it.

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I ../../fanout/bpf/include -I ../wire" -type sink_flow -type sink_count -type sink_shared -type sink_bucket counter sink.c
