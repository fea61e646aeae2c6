// Package caps says which capability is missing when the kernel answers EPERM.
package caps

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Cap is a capability (capabilities(7)).
type Cap uint8

// The capabilities that epair uses.
const (
	NetAdmin    Cap = unix.CAP_NET_ADMIN    // links, addresses, offloads
	NetRaw      Cap = unix.CAP_NET_RAW      // packet sockets
	SysAdmin    Cap = unix.CAP_SYS_ADMIN    // network namespaces
	SysNice     Cap = unix.CAP_SYS_NICE     // scheduling of kernel threads
	BPF         Cap = unix.CAP_BPF          // programs and maps
	Perfmon     Cap = unix.CAP_PERFMON      // what tracing programs read
	DACOverride Cap = unix.CAP_DAC_OVERRIDE // sysfs settings without being root
)

var names = map[Cap]string{
	NetAdmin: "CAP_NET_ADMIN", NetRaw: "CAP_NET_RAW", SysAdmin: "CAP_SYS_ADMIN", SysNice: "CAP_SYS_NICE",
	BPF: "CAP_BPF", Perfmon: "CAP_PERFMON", DACOverride: "CAP_DAC_OVERRIDE",
}

// String returns the name that capabilities(7) has.
func (c Cap) String() string { return names[c] }

// Set is a set of capabilities.
type Set uint64

// Has says whether c is in the set.
func (s Set) Has(c Cap) bool { return s>>c&1 != 0 }

// Missing returns those of need that aren't in the set.
func (s Set) Missing(need ...Cap) []Cap {
	var out []Cap
	for _, c := range need {
		if !s.Has(c) {
			out = append(out, c)
		}
	}
	return out
}

// Effective returns the effective capabilities of the calling thread.
func Effective() (Set, error) {
	b, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return 0, err
	}
	return parse(string(b))
}

func parse(status string) (Set, error) {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			return Set(n), err
		}
	}
	return 0, errors.New("read capabilities: /proc/thread-self/status has no CapEff")
}

// Explain adds to an error of missing permission which of the capabilities that the
// operation needs are missing. Other errors, those it has explained already, and nil, it returns as they are.
func Explain(err error, need ...Cap) error {
	if already := (*explained)(nil); errors.As(err, &already) {
		return err
	}
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return err
	}
	have, rerr := Effective()
	if rerr != nil {
		return err
	}
	return explain(err, have, need)
}

func explain(err error, have Set, need []Cap) error {
	missing := have.Missing(need...)
	if len(missing) == 0 {
		return &explained{err, "no capability is missing: a security module, a seccomp filter or a namespace of another user forbids it"}
	}
	list := make([]string, len(missing))
	for i, c := range missing {
		list[i] = c.String()
	}
	return &explained{err, fmt.Sprintf("missing %s: run as root, or grant it", strings.Join(list, ", "))}
}

// explained is an error that Explain has been at.
type explained struct {
	err error
	why string
}

func (e *explained) Error() string { return e.err.Error() + " (" + e.why + ")" }
func (e *explained) Unwrap() error { return e.err }
