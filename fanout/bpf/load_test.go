package bpf

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/internal/caps"
	"github.com/epair-net/epair/rss"
)

// The verifier must accept every program, for a process with no more than these three
// capabilities; and who lacks one of them is told which.
func TestLoadWithCapabilities(t *testing.T) {
	needBPF(t)
	for _, c := range []struct {
		name string
		have []caps.Cap
		want string // in the error
	}{
		{"all", []caps.Cap{caps.BPF, caps.NetAdmin, caps.Perfmon}, ""},
		{"none", nil, "missing CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON:"},
		{"no bpf", []caps.Cap{caps.NetAdmin, caps.Perfmon}, "missing CAP_BPF:"},
		{"no net_admin", []caps.Cap{caps.BPF, caps.Perfmon}, "missing CAP_NET_ADMIN:"},
		{"no perfmon", []caps.Cap{caps.BPF, caps.NetAdmin}, "missing CAP_PERFMON:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := withCaps(c.have, loadAll)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%+v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want %q in it", err, c.want)
			case err != nil && strings.Contains(err.Error(), "MEMLOCK"):
				t.Errorf("%v", err)
			}
		})
	}
}

// loadAll makes and loads everything there is, and gives it up.
func loadAll() error {
	h, err := rss.New(rss.Config{})
	if err != nil {
		return err
	}
	table, err := rss.ParseTable("", 0, 4)
	if err != nil {
		return err
	}
	r, err := NewRSS(h, table)
	if err != nil {
		return err
	}
	defer r.Close()
	tap, err := r.NewTapSteering(table)
	if err != nil {
		return err
	}
	defer tap.Close()
	packet, err := r.NewPacketSteering(table)
	if err != nil {
		return err
	}
	defer packet.Close()
	o, err := loadChecks(r)
	if err != nil {
		return explain("load checks", err)
	}
	return o.Close()
}

// withCaps runs fn on a thread that has only these capabilities, and ends with it.
func withCaps(have []caps.Cap, fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := keepCaps(have); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

func keepCaps(have []caps.Cap) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for _, c := range have {
		data[c/32].Effective |= 1 << (c % 32)
		data[c/32].Permitted |= 1 << (c % 32)
	}
	return unix.Capset(&hdr, &data[0])
}

// What is closed twice, or while something else uses it, does no harm.
func TestClose(t *testing.T) {
	frame := flowFrame("192.0.2.1:40000", "198.51.100.2:80", 0)
	h, table := mustHasher(t, rss.Config{}), mustTable(t, "", 0, 4)
	r := mustRSS(t, h, table)
	s, err := r.NewPacketSteering(table)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Errorf("close rss: %v", err)
	}
	if err := r.SetHasher(h); err == nil {
		t.Error("a closed rss takes a hash")
	}
	want := uint32(table.Worker(table.Bucket(h.Hash(frame))))
	if got, err := s.prog.Run(&ebpf.RunOptions{Data: frame}); err != nil || got != want {
		t.Errorf("program of a closed rss: %d (%v), want %d", got, err, want)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Errorf("close steering: %v", err)
	}
	if err := s.SetIndex(table, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed steering takes indices: %v", err)
	}
}
