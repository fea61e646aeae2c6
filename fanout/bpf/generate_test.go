package bpf

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I include" -type epair_bounds -type epair_type -type epair_fields -type epair_func -type epair_quick check check.c
