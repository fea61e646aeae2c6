package porttest

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// NS is a network namespace without a name: it lives as long as something of it is open.
type NS struct{ *netns.NS }

// NewNS makes a namespace with IPv6 off, so that no frame is in it but the test's.
// Without the privilege it skips the test, or fails it when EPAIR_REQUIRE=1.
func NewNS(t testing.TB) *NS {
	t.Helper()
	n, err := netns.NewAnonymous()
	switch {
	case errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1":
		t.Skipf("%v (needs CAP_SYS_ADMIN)", err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	ns := &NS{n}
	err = ns.Do(func() error {
		for _, k := range []string{"all", "default"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+k+"/disable_ipv6", []byte("1"), 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("turn IPv6 off: %v", err)
	}
	return ns
}
