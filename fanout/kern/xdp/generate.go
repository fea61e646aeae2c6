package xdp

// The objects are committed, as those of package bpf; see there.

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I ../../bpf -I ../../bpf/include" cross cross.c
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I ../../bpf -I ../../bpf/include" shared shared.c
