package porttest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// NS is a network namespace without a name: it lives as long as something of it is open.
type NS struct {
	fd   int
	once sync.Once
	err  error
}

// NewNS makes a namespace with IPv6 off, so that no frame is in it but the test's.
// Without the privilege it skips the test, or fails it when EPAIR_REQUIRE=1.
func NewNS(t testing.TB) *NS {
	t.Helper()
	ns := &NS{}
	err := onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		for _, k := range []string{"all", "default"} {
			if err = os.WriteFile("/proc/sys/net/ipv6/conf/"+k+"/disable_ipv6", []byte("1"), 0); err != nil {
				return err
			}
		}
		ns.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	switch {
	case errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1":
		t.Skipf("make a network namespace: %v (needs CAP_SYS_ADMIN)", err)
	case err != nil:
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// FD is the namespace's descriptor. borrowed: valid until Close.
func (n *NS) FD() int { return n.fd }

// Do runs fn inside the namespace, on a thread of its own that ends with it.
func (n *NS) Do(fn func() error) error {
	return onThread(func() error {
		if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter namespace: %w", err)
		}
		return fn()
	})
}

// Close gives the namespace up. If nothing else holds it, it ends, and its interfaces with it.
func (n *NS) Close() error {
	n.once.Do(func() { n.err = unix.Close(n.fd) })
	return n.err
}

// onThread runs fn on a thread that isn't used again afterwards.
func onThread(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- fn()
	}()
	return <-done
}
