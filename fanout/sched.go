package fanout

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Sched is how the kernel schedules the workers (sched(7)).
type Sched struct {
	Policy   string // "other" (default), "batch", "fifo", "rr"
	Priority int    // 1–99 for fifo and rr, else 0
}

// number returns the kernel's number of the policy.
func (s Sched) number() (policy uint32, realtime bool, err error) {
	switch s.Policy {
	case "", "other":
		return unix.SCHED_NORMAL, false, nil
	case "batch":
		return unix.SCHED_BATCH, false, nil
	case "fifo":
		return unix.SCHED_FIFO, true, nil
	case "rr":
		return unix.SCHED_RR, true, nil
	}
	return 0, false, fmt.Errorf("set scheduling policy %q: unknown (use other, batch, fifo or rr)", s.Policy)
}

// Validate tells what is wrong with s.
func (s Sched) Validate() error {
	_, realtime, err := s.number()
	if err != nil {
		return err
	}
	if realtime && (s.Priority < 1 || s.Priority > 99) {
		return fmt.Errorf("set scheduling priority %d: out of range (policy %s takes 1 to 99)", s.Priority, s.Policy)
	}
	if !realtime && s.Priority != 0 {
		return fmt.Errorf("set scheduling priority %d: policy %q has none (use fifo or rr)", s.Priority, s.Policy)
	}
	return nil
}

// setThread names the calling thread, pins it to cpu and sets its policy.
func setThread(name string, cpu int, s Sched) error {
	if err := pinThread(cpu); err != nil {
		return err
	}
	comm, err := unix.ByteSliceFromString(name)
	if err != nil {
		return err
	}
	if err := setThreadName(comm); err != nil {
		return fmt.Errorf("name worker thread %s: %w", name, err)
	}
	policy, _, err := s.number()
	if err != nil || policy == unix.SCHED_NORMAL {
		return err
	}
	err = unix.SchedSetAttr(0, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: policy, Priority: uint32(s.Priority),
	}, 0)
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("set scheduling policy %s: %w (needs CAP_SYS_NICE)", s.Policy, err)
	}
	return err
}
