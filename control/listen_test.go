package control

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// staleSocket leaves a socket behind, as a crash does.
func staleSocket(t *testing.T, path string) {
	t.Helper()
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	ln.Close()
}

// A process that is too busy to accept is there all the same: its socket stays.
func TestListenLeavesABusySocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for { // fill its queue
		c, err := net.Dial("unix", path)
		if errors.Is(err, syscall.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if ln, err := Listen(ctx, path); err == nil {
		t.Errorf("replaced by %v", ln.Addr())
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error("the socket is gone:", err)
	}
}

// Of many that start at once beside a stale socket, one gets it, and keeps it.
func TestListenAtOnce(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "s")
		staleSocket(t, path)
		ctx, stop := context.WithCancel(t.Context())
		var starting, serving sync.WaitGroup
		var got atomic.Int32
		for range 16 {
			starting.Go(func() {
				ln, err := Listen(ctx, path)
				if err == nil {
					got.Add(1)
					serving.Go(func() { _ = serve(ctx, ln, new(Daemon).handler()) })
				} else if !strings.Contains(err.Error(), "another daemon") {
					t.Error(err)
				}
			})
		}
		starting.Wait()
		if n := got.Load(); n != 1 {
			t.Errorf("%d daemons have the socket", n)
		}
		c := NewClient(path)
		if _, err := c.Version(ctx); err != nil {
			t.Error(err)
		}
		c.Close()
		stop()
		serving.Wait()
	}
}

func TestSocketNames(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		"":                                   "no name",
		"@epair":                             "not the path",
		dir + "/" + strings.Repeat("s", 108): "longer than 107 bytes",
		dir + "/not/there":                   "no such file",
	} {
		ln, err := Listen(t.Context(), path)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "unix") > 0 {
			t.Errorf("listen at %q: %v, %v", path, ln, err)
		}
		if path == dir+"/not/there" {
			continue
		}
		c := NewClient(path)
		if _, err := c.Version(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ask %q: %v", path, err)
		}
		c.Close()
	}
}

// A daemon that is stopped is no riddle, nor is one that the user didn't wait for.
func TestNoAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() // it accepts nobody
	c := NewClient(path)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Stat(ctx); err == nil || !strings.HasSuffix(err.Error(), "no answer in time (is it stopped, or its machine overloaded?)") {
		t.Error(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := c.Stat(ctx); err == nil || !strings.HasSuffix(err.Error(), ": interrupted") {
		t.Error(err)
	}
}
