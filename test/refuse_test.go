package test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/epair-net/epair/internal/netns"
)

//	namespace a, somebody else's            namespace b, not there
//	e0 ── veth ── theirs                    nothing

// What is somebody else's stays as it is, and the refusal names it in one line.
func TestForeignNameTaken(t *testing.T) {
	needRoot(t)
	ns, err := netns.Create(nsName("a"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(ns.Close(), netns.Delete(nsName("a"))); err != nil {
			t.Error(err)
		}
	})
	inNS(t, "a", func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "e0", TxQLen: -1}, PeerName: "theirs", PeerHardwareAddr: theirMAC()})
	})
	bin, dir := build(t), t.TempDir()
	for _, c := range []struct {
		text   string
		status int
	}{
		{end("veth", "e0", "a") + end("veth", "e0", "b"), 1},
		{end("veth", "e0", "b") + end("veth", "e0", "a"), 1},
		{end("tap", "e0", "a") + end("veth", "e0", "b"), 1},
		{end("veth", "e0", "a") + end("tap", "e0", "a"), 2}, // both ends the same
	} {
		file := filepath.Join(dir, "lab.yaml")
		text := strings.Replace(strings.Replace("version: epair/v1\npairs:\n- name: p\n"+c.text, "X:", "a:", 1), "X:", "b:", 1)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		cmd := exec.CommandContext(ctx, bin, "run", "-f", file, "--socket", filepath.Join(dir, "sock"))
		var stderr strings.Builder
		cmd.Stderr = &stderr
		_ = cmd.Run() // its status is what counts
		cancel()
		got := strings.TrimSpace(stderr.String())
		if s := cmd.ProcessState.ExitCode(); s != c.status || strings.Contains(got, "\n") || !strings.Contains(got, "e0") {
			t.Errorf("status %d, want %d with one line naming e0:\n%s\n%s", s, c.status, text, got)
		}
		onlyForeign(t)
	}
}

func end(kind, name, side string) string {
	return fmt.Sprintf("  X: {kind: %s, name: %s, netns: %s}\n", kind, name, nsName(side))
}

func theirMAC() net.HardwareAddr { return net.HardwareAddr{2, 7, 7, 7, 7, 7} }

// onlyForeign checks that the foreign interfaces are unchanged, and no other is there.
func onlyForeign(t *testing.T) {
	t.Helper()
	inNS(t, "a", func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		var names []string
		for _, l := range links {
			a := l.Attrs()
			if a.Name == "theirs" && a.HardwareAddr.String() != theirMAC().String() || a.Name == "e0" && a.Flags&net.FlagUp != 0 {
				t.Errorf("the foreign interface %s has changed: %+v", a.Name, a)
			}
			names = append(names, a.Name)
		}
		slices.Sort(names)
		if want := []string{"e0", "lo", "theirs"}; !slices.Equal(names, want) {
			t.Errorf("in the foreign namespace are %v, want %v", names, want)
		}
		return nil
	})
	if _, err := os.Stat(filepath.Join(netns.RunDir, nsName("b"))); err == nil {
		t.Errorf("namespace %s is left behind", nsName("b"))
	}
}
