package bpf

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/caps"
)

// explain says what was done when err came, and which capabilities are missing.
//
// Maps need CAP_BPF; programs CAP_PERFMON too, without which the verifier doesn't
// let a table be indexed by a frame's bytes (EACCES), and those for XDP and tc CAP_NET_ADMIN.
// Of a refusal (EPERM) only the number is kept: the loader's text suspects RLIMIT_MEMLOCK, to
// which maps aren't charged any more (Linux 5.11).
func explain(verb string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EPERM) {
		err = unix.EPERM
	}
	err = fmt.Errorf("%s: %w", verb, err)
	if have, cerr := caps.Effective(); errors.Is(err, unix.EPERM) || cerr == nil && !have.Has(caps.Perfmon) {
		return caps.Explain(err, caps.BPF, caps.NetAdmin, caps.Perfmon)
	}
	return err
}
