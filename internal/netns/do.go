package netns

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// errExited is what a fn that left by runtime.Goexit (t.FailNow) instead of returning has as its error.
var errExited = errors.New("function didn't return")

// Do runs fn in the network namespace that fd refers to and returns its error.
//
// fn runs on a goroutine of its own, locked to its thread. The caller's thread stays
// where it is, and so does every goroutine that fn starts: those run in the
// process's own namespace. What fn opens (sockets, /proc/thread-self/ns/net) belongs to the
// namespace and may be used from any thread later. fd is borrowed for the call.
func Do(fd int, fn func() error) error {
	return onThread(func() error {
		return within(func() error { return unix.Setns(fd, unix.CLONE_NEWNET) }, fn)
	})
}

// onThread runs fn on a fresh goroutine, which starts in the process's own namespace:
// the runtime makes threads only from threads that no goroutine has locked.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errExited
		defer func() { done <- err }()
		err = fn()
	}()
	return <-done
}

// within locks the thread, lets enter change its namespace, runs fn and changes
// back. If that fails, the goroutine ends locked and the runtime destroys the thread.
func within(enter, fn func() error) (err error) {
	runtime.LockOSThread()
	home, err := openSelf()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer unix.Close(home)
	if err := enter(); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w", err)
	}
	defer func() {
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return fn()
}

// openSelf opens the namespace of the calling thread.
func openSelf() (int, error) {
	const path = "/proc/thread-self/ns/net"
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}
