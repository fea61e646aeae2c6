package ethtool

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/netns"
)

// inVeth runs fn in a namespace of its own that has a veth v0 with its peer v1.
func inVeth(t *testing.T, fn func()) {
	t.Helper()
	ns, err := netns.NewAnonymous()
	if errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1" {
		t.Skip(err, "(needs CAP_SYS_ADMIN)")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	err = ns.Do(func() error {
		err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v0"}, PeerName: "v1"})
		if err == nil {
			fn()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func features(t *testing.T, name string) map[string]Feature {
	t.Helper()
	f, err := Features(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSetAndPutBack(t *testing.T) {
	inVeth(t, func() {
		first := features(t, "v0")
		for _, name := range []string{"tx-gre-segmentation", "tx-sctp-segmentation", "tx-tcp-segmentation"} {
			if f := first[name]; !f.On || f.Fixed {
				t.Fatalf("%s: %+v", name, f)
			}
		}
		before, err := SetFeatures("v0", map[string]bool{"tx-gre-segmentation": false, "tx-sctp-segmentation": false, "tx-tcp-segmentation": true})
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]bool{"tx-gre-segmentation": true, "tx-sctp-segmentation": true}; !maps.Equal(before, want) {
			t.Errorf("before: %v, want %v", before, want)
		}
		f := features(t, "v0")
		if f["tx-gre-segmentation"].On || f["tx-sctp-segmentation"].On || !f["tx-tcp-segmentation"].On {
			t.Errorf("after: %+v", f)
		}
		if again, err := SetFeatures("v0", map[string]bool{"tx-gre-segmentation": false}); err != nil || len(again) > 0 {
			t.Errorf("what is off already: %v %v", again, err)
		}
		if _, err := SetFeatures("v0", before); err != nil {
			t.Fatal(err)
		}
		if last := features(t, "v0"); !maps.Equal(last, first) {
			t.Errorf("put back: %v, was %v", last, first)
		}
		if peer := features(t, "v1"); !maps.Equal(peer, first) {
			t.Errorf("the peer has changed: %v", peer)
		}
	})
}

// What the kernel turns off as a consequence is put back too.
func TestConsequences(t *testing.T) {
	inVeth(t, func() {
		first := features(t, "v0")
		before, err := SetFeatures("v0", map[string]bool{"tx-checksum-ip-generic": false})
		if err != nil {
			t.Fatal(err)
		}
		if !before["tx-tcp-segmentation"] { // needs a checksum offload: netdev_fix_features
			t.Errorf("before: %v", before)
		}
		if _, err := SetFeatures("v0", before); err != nil {
			t.Fatal(err)
		}
		if last := features(t, "v0"); !maps.Equal(last, first) {
			t.Errorf("put back: %v, was %v", last, first)
		}
	})
}

func TestFixedAndUnknown(t *testing.T) {
	inVeth(t, func() {
		before, err := SetFeatures("v0", map[string]bool{"tx-gre-segmentation": false, "ntuple-filters-not": false, "loopback": true})
		if !errors.Is(err, ErrFixed) || !strings.Contains(err.Error(), "loopback") || strings.Contains(err.Error(), "not") {
			t.Errorf("error: %v", err)
		}
		if !before["tx-gre-segmentation"] {
			t.Errorf("the others weren't set: %v", before)
		}
		if _, err := Features("nosuchif"); !errors.Is(err, unix.ENODEV) {
			t.Errorf("no interface: %v", err)
		}
		for _, bad := range []string{"", "0123456789abcdef"} {
			if _, err := Features(bad); !errors.Is(err, unix.EINVAL) {
				t.Errorf("%q: %v", bad, err)
			}
		}
	})
}

// ethtool(8) must see what we see.
func TestAgainstEthtool(t *testing.T) {
	tool, err := exec.LookPath("ethtool")
	if err != nil {
		t.Skip(err)
	}
	inVeth(t, func() {
		if _, err := SetFeatures("v0", map[string]bool{"tx-gre-segmentation": false}); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(tool, "-k", "v0").Output() // a child of this thread: in its namespace
		if err != nil {
			t.Fatal(err)
		}
		ours, checked := features(t, "v0"), 0
		for line := range strings.Lines(string(out)) {
			name, state, _ := strings.Cut(strings.TrimSpace(line), ": ")
			f, known := ours[name]
			if !known || state == "" {
				continue
			}
			checked++
			if on := strings.HasPrefix(state, "on"); on != f.On || strings.Contains(state, "[fixed]") != f.Fixed {
				t.Errorf("%s: %+v, ethtool says %q", name, f, state)
			}
		}
		if checked < 20 {
			t.Errorf("compared only %d features", checked)
		}
	})
}
