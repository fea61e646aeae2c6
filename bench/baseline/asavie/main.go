// Command epair-asavie forwards frames between two interfaces by github.com/asavie/xdp: the row `asavie` of
// `epair bench`, which starts it when it is in the path. Build it where the library can be fetched:
//
//	go get github.com/asavie/xdp@latest && go mod tidy && go build -o /usr/local/bin/epair-asavie .
//
// It is a comparison and nothing to build on. The library has no UMEM for two sockets, so each frame is copied from one to
// the other; it doesn't know need_wakeup, so each batch costs a sendto; it looks for free descriptors from
// the first on; it has no memory barriers, and panics when an interface goes down.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"runtime"

	"github.com/asavie/xdp"
	"golang.org/x/sys/unix"
)

// Rings as long as the batches that a loaded socket brings; longer ones cost more in the search for free descriptors than
// they save.
var options = xdp.SocketOptions{
	NumFrames: 512, FrameSize: 2048,
	FillRingNumDescs: 256, CompletionRingNumDescs: 256, RxRingNumDescs: 256, TxRingNumDescs: 256,
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("epair-asavie: ")
	cpu := flag.Int("cpu", -1, "CPU to forward on")
	flag.Parse()
	if flag.NArg() != 2 {
		log.Fatal("usage: epair-asavie [-cpu N] INTERFACE INTERFACE")
	}
	runtime.LockOSThread()
	if *cpu >= 0 {
		var set unix.CPUSet
		set.Set(*cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			log.Fatalf("pin to CPU %d: %v", *cpu, err)
		}
	}
	a, b := open(flag.Arg(0)), open(flag.Arg(1))
	// Whoever started it ends it by closing its input; the programs go with the interfaces.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println("forwarding")
	forward(a, b)
}

// open takes the frames of an interface's first queue.
func open(name string) *xdp.Socket {
	link, err := net.InterfaceByName(name)
	if err != nil {
		log.Fatal(err)
	}
	program, err := xdp.NewProgram(1)
	if err != nil {
		log.Fatalf("load program: %v", err)
	}
	socket, err := xdp.NewSocket(link.Index, 0, &options)
	if err != nil {
		log.Fatalf("open socket on %s: %v", name, err)
	}
	if err := program.Attach(link.Index); err != nil {
		log.Fatalf("attach program to %s: %v", name, err)
	}
	if err := program.Register(0, socket.FD()); err != nil {
		log.Fatalf("register socket of %s: %v", name, err)
	}
	return socket
}

func forward(a, b *xdp.Socket) {
	fds := []unix.PollFd{{Fd: int32(a.FD())}, {Fd: int32(b.FD())}}
	for {
		for i, s := range []*xdp.Socket{a, b} {
			s.Complete(s.NumCompleted())
			s.Fill(s.GetDescs(s.NumFreeFillSlots(), true))
			fds[i].Events = unix.POLLIN
			if s.NumTransmitted() > 0 {
				fds[i].Events |= unix.POLLOUT
			}
		}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			log.Fatalf("poll: %v", err)
		}
		move(a, b)
		move(b, a)
	}
}

// move copies what one has received to the other, as far as that has room.
func move(from, to *xdp.Socket) {
	n := from.NumReceived()
	if n == 0 {
		return
	}
	out := to.GetDescs(min(n, to.NumFreeTxSlots()), false)
	in := from.Receive(len(out))
	for i, d := range in {
		out[i].Len = uint32(copy(to.GetFrame(out[i]), from.GetFrame(d)))
	}
	to.Transmit(out[:len(in)])
}
