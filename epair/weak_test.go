package epair

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// roleWeak tries what it has no capability for.
func roleWeak() error {
	env, err := NewEnv(EnvConfig{})
	if err != nil {
		return err
	}
	_, err = Create(vethPair("weak", "weak-a", "weak-b"), env)
	return errors.Join(err, env.Close())
}

func TestMissingCapabilities(t *testing.T) {
	isolated(t)
	before := world(t)
	for _, c := range []struct {
		drop uintptr
		want string
	}{
		{unix.CAP_SYS_ADMIN, "(missing CAP_SYS_ADMIN: run as root, or grant it)"},
		{unix.CAP_NET_ADMIN, "(missing CAP_NET_ADMIN: run as root, or grant it)"},
	} {
		out, err := runWithout(c.drop)
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("without %d: %v", c.drop, err)
		}
		if !strings.HasPrefix(out, "error: ") || !strings.Contains(out, c.want) || strings.Count(out, "\n") != 1 || strings.Count(out, "missing") != 1 {
			t.Errorf("without %d: %q, want %q", c.drop, out, c.want)
		}
		same(t, before, world(t))
	}
}

// runWithout runs the role weak without a capability: root gets what the bounding set has.
func runWithout(c uintptr) (out string, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		if err = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return
		}
		cmd := exec.Command("/proc/self/exe") // inherits from this thread
		cmd.Env = append(os.Environ(), roleVar+"=weak")
		var b []byte
		b, err = cmd.Output()
		out = string(b)
	}()
	<-done
	return out, err
}
