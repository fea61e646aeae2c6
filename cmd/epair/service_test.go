package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/control"
)

const unitFile = "../../deploy/epair.service"

// capNumbers are those of linux/capability.h.
var capNumbers = map[string]uintptr{
	"CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "CAP_NET_ADMIN": unix.CAP_NET_ADMIN, "CAP_NET_RAW": unix.CAP_NET_RAW,
	"CAP_NET_BROADCAST": unix.CAP_NET_BROADCAST, "CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN, "CAP_SYS_NICE": unix.CAP_SYS_NICE, "CAP_PERFMON": unix.CAP_PERFMON, "CAP_BPF": unix.CAP_BPF,
}

func unitSetting(t *testing.T, key string) string {
	t.Helper()
	data, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + key + `=(.*)$`).FindSubmatch(data)
	if m == nil {
		t.Fatalf("the unit doesn't set %s", key)
	}
	return string(m[1])
}

// startBounded starts a process that can get these capabilities at most, and no more by any exec. Both are a thread's,
// and its children's (capabilities(7), PR_SET_NO_NEW_PRIVS): the thread ends with the goroutine.
func startBounded(allowed []uintptr) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error {
		done := make(chan error)
		go func() {
			runtime.LockOSThread()
			done <- func() error {
				for c := range uintptr(unix.CAP_LAST_CAP + 1) {
					if slices.Contains(allowed, c) {
						continue
					}
					if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL {
						return fmt.Errorf("drop capability %d: %w", c, err)
					}
				}
				if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
					return err
				}
				return cmd.Start()
			}()
		}()
		return <-done
	}
}

// With the capabilities of the unit, and none else, every datapath works in every mode.
func TestServiceCapabilities(t *testing.T) {
	needRoot(t)
	var allowed []uintptr
	for _, name := range strings.Fields(unitSetting(t, "CapabilityBoundingSet")) {
		n, ok := capNumbers[name]
		if !ok {
			t.Fatalf("the unit has %s, which epair doesn't need", name)
		}
		allowed = append(allowed, n)
	}
	w := startDaemonBy(t, startBounded(allowed))
	for _, args := range [][]string{
		{"--datapath", "user", "--port", "packet"}, {"--datapath", "user", "--port", "xdp"},
		{"--datapath", "direct"}, {"--datapath", "tc", "--persist"}, {"--datapath", "xdp"}, {"--datapath", "user"},
	} {
		a := end("e0", "a")
		if len(args) == 2 && args[1] == "user" {
			a = strings.Replace(a, "veth:", "tap:", 1)
		}
		added := parse[control.Pairs](w, append([]string{"add", "p", "--a", a, "--b", end("e0", "b")}, args...)...)
		if p := added.Pairs[0]; p.State != "up" || p.Datapath != args[1] {
			t.Errorf("%v: %s %s", args, p.Datapath, p.State)
		}
		for _, mode := range []string{"inline", "poller", "pool"} {
			w.must(nil, "set", "p", "mode="+mode)
		}
		w.must([]string{"every ledger balances"}, "audit")
		w.must(nil, "del", "p")
	}
}

// systemd understands the unit, where it is installed.
func TestServiceUnit(t *testing.T) {
	if unitSetting(t, "NoNewPrivileges") != "yes" {
		t.Error("the unit doesn't set NoNewPrivileges=yes")
	}
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	data, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	// systemd also looks whether the binary is there.
	unit := filepath.Join(t.TempDir(), "epair.service")
	text := strings.ReplaceAll(string(data), "/usr/local/bin/epair", "/bin/true")
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(tool, "verify", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
