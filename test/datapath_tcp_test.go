package test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/epair-net/epair/epair"
)

// TCP connections live through changes, both ways, and nothing of what they carry changes.
func TestDatapathTCP(t *testing.T) {
	needRoot(t)
	d := start(t, cell{epair.Veth, epair.Veth, "tc", "inline"}.config("0,1"))
	var ln net.Listener
	inNS(t, "b", func() (err error) { ln, err = net.Listen("tcp", "10.66.0.2:0"); return err })
	defer ln.Close()
	var stop atomic.Bool
	done := make(chan error, 4)
	talk := func(c net.Conn) {
		t.Cleanup(func() { _ = c.Close() })
		go func() { done <- writeNumbers(c, &stop) }()
		go func() { done <- readNumbers(c) }()
	}
	go func() {
		if c, err := ln.Accept(); err == nil {
			talk(c)
		}
	}()
	var c net.Conn
	inNS(t, "a", func() (err error) { c, err = net.DialTimeout("tcp", ln.Addr().String(), 5*time.Second); return err })
	talk(c)
	visit(t, d, []way{{"user", "pool"}, {"xdp", "pool"}, {"tc", "pool"}, {"xdp", "inline"}, {"user", "inline"}, {"tc", "poller"}, {"user", "poller"}, {"tc", "inline"}})
	stop.Store(true)
	for range 4 {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("tcp stalls")
		}
	}
}

// writeNumbers writes 1, 2, 3 … until stop, and ends the stream.
func writeNumbers(c net.Conn, stop *atomic.Bool) error {
	w := bufio.NewWriterSize(c, 1<<16)
	for n := uint64(1); !stop.Load(); n++ {
		if _, err := w.Write(binary.BigEndian.AppendUint64(nil, n)); err != nil {
			return err
		}
	}
	return errors.Join(w.Flush(), c.(*net.TCPConn).CloseWrite())
}

func readNumbers(c net.Conn) error {
	r, b := bufio.NewReaderSize(c, 1<<16), make([]byte, 8)
	for n := uint64(1); ; n++ {
		_, err := io.ReadFull(r, b)
		if errors.Is(err, io.EOF) && n > 1 {
			return nil
		}
		if err != nil {
			return err
		}
		if got := binary.BigEndian.Uint64(b); got != n {
			return fmt.Errorf("read %d, want %d", got, n)
		}
	}
}
