package skb

// The objects are compiled from C and committed, so that building needs no clang. `go generate` must
// give the same bytes again: no path of the machine gets into them.

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I ../../bpf/include -I ../../bpf" skb skb.c
