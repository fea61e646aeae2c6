package bpf

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/caps"
)

// explain says what was done when err came, and which capability was missing.
//
// Of a refusal (EPERM) only the number is kept: since Linux 5.11 maps aren't charged to
// RLIMIT_MEMLOCK, which the loader's text suspects. A program that the verifier refuses with
// EACCES may be fine for a process with CAP_PERFMON.
func explain(verb string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		return caps.Explain(fmt.Errorf("%s: %w", verb, unix.EPERM), caps.BPF, caps.NetAdmin)
	}
	err = fmt.Errorf("%s: %w", verb, err)
	if have, cerr := caps.Effective(); errors.Is(err, unix.EACCES) && cerr == nil && !have.Has(caps.Perfmon) {
		return caps.Explain(err, caps.Perfmon)
	}
	return err
}
