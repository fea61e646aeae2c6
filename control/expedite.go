package control

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// hurryFrom is the number of pairs from which on a change is worth hurrying the whole machine.
const hurryFrom = 8

// expediter lets the kernel hurry while many pairs come or go. To open a packet ring, to attach a program to a
// device and to close either, the kernel waits until no CPU reads what was (synchronize_rcu): 10 to 50 ms each, a few per pair.
// With /sys/kernel/rcu_expedited it interrupts all CPUs instead, and waits microseconds. That is the machine's setting,
// not ours: it's changed only if the user asks for that, for the time of the change, and put back. A note in the
// run directory says what it was, so that the next daemon puts it back after a crash.
//
// Concurrency contract: all methods may be called from any goroutine.
type expediter struct {
	knob, note string
	on         bool

	mu    sync.Mutex // guards what follows
	users int
	held  *os.File // the note, locked, while the setting is changed
	was   string
}

func newExpediter() *expediter {
	return &expediter{knob: "/sys/kernel/rcu_expedited", note: "/run/epair/rcu_expedited"}
}

// Option is a setting of a daemon that isn't in its configuration.
type Option func(*Daemon)

// Expedite lets the kernel hurry while many pairs are created or deleted, which all CPUs notice.
func Expedite() Option { return func(d *Daemon) { d.hurry.on = true } }

// begin hurries until end, for a change of n pairs.
func (e *expediter) begin(n int) (end func() error, err error) {
	nothing := func() error { return nil }
	if !e.on || n < hurryFrom {
		return nothing, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.users == 0 {
		if err := e.set(); err != nil {
			return nothing, fmt.Errorf("hurry the kernel: %w (leave out --expedite)", err)
		}
	}
	e.users++
	return sync.OnceValue(e.end), nil
}

func (e *expediter) end() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.users--; e.users > 0 || e.held == nil {
		return nil
	}
	f := e.held
	e.held = nil
	return errors.Join(os.WriteFile(e.knob, []byte(e.was), 0), os.Remove(e.note), f.Close())
}

// set changes the setting, unless it's so already or another daemon is at it.
func (e *expediter) set() error {
	f, was, err := e.open(os.O_CREATE)
	if f == nil || err != nil {
		return err
	}
	if was == "1" {
		return errors.Join(os.Remove(e.note), f.Close())
	}
	e.held, e.was = f, was
	_, err = f.WriteAt([]byte(was), 0)
	if err == nil {
		err = os.WriteFile(e.knob, []byte("1"), 0)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(e.note), f.Close())
		e.held = nil
	}
	return err
}

// open returns the note, locked, and what the setting was before anybody hurried; nil, if another daemon has it.
func (e *expediter) open(flag int) (f *os.File, was string, err error) {
	if f, err = os.OpenFile(e.note, os.O_RDWR|flag, 0o600); err != nil {
		return nil, "", err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = nil
		}
		return nil, "", errors.Join(err, f.Close())
	}
	for _, path := range []string{e.note, e.knob} {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, "", errors.Join(err, f.Close())
		}
		if was = strings.TrimSpace(string(text)); was != "" {
			break
		}
	}
	return f, was, nil
}

// recover puts the setting back after a crash.
func (e *expediter) recover() error {
	f, was, err := e.open(0)
	if errors.Is(err, fs.ErrNotExist) || f == nil && err == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("put %s back after a crash: %w", e.knob, err)
	}
	return errors.Join(os.WriteFile(e.knob, []byte(was), 0), os.Remove(e.note), f.Close())
}
