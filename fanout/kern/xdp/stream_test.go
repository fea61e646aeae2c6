package xdp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/epair-net/epair/fanout/kern"
)

// A TCP stream both ways arrives whole while modes change.
func TestStream(t *testing.T) {
	const size = 24 << 20
	w := newWorld(t, 1500, 2)
	x := w.cross(t, kern.Inline)
	var l net.Listener
	w.in(t, 1, func() (err error) { l, err = net.Listen("tcp4", "10.0.0.2:0"); return err })
	defer l.Close()
	var c net.Conn
	w.in(t, 0, func() (err error) { c, err = net.DialTimeout("tcp4", l.Addr().String(), 5*time.Second); return err })
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 4)
	for i, pair := range [][2]net.Conn{{c, s}, {s, c}} {
		h, sum := sha256.New(), sha256.New()
		sent := make(chan error, 1)
		go func() {
			src := io.LimitReader(rand.NewChaCha8([32]byte{byte(i)}), size)
			_, err := io.Copy(pair[0], io.TeeReader(src, h))
			sent <- errors.Join(err, pair[0].(*net.TCPConn).CloseWrite())
		}()
		go func() {
			_, err := io.Copy(sum, pair[1])
			if err = errors.Join(err, <-sent); err == nil && !bytes.Equal(h.Sum(nil), sum.Sum(nil)) {
				err = errors.New("what arrived isn't what was sent")
			}
			done <- err
		}()
	}
	defer c.Close()
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for i, left := 0, 2; left > 0; i++ {
		select {
		case err := <-done:
			if left--; err != nil {
				t.Error(err)
			}
		case <-ctx.Done():
			t.Fatal("stream doesn't end")
		case <-time.After(20 * time.Millisecond):
			if _, err := x.SetMode(modes[i%3]); err != nil {
				t.Fatal(err)
			}
		}
	}
	balance(t, x)
}
