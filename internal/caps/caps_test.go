package caps

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	s, err := parse("Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t000000c000203000\nCapBnd:\t000001ffffffffff\n")
	if err != nil {
		t.Fatal(err)
	}
	for c, want := range map[Cap]bool{NetAdmin: true, NetRaw: true, SysAdmin: true, BPF: true, Perfmon: true, SysNice: false, DACOverride: false} {
		if s.Has(c) != want {
			t.Errorf("%s: %v", c, s.Has(c))
		}
	}
	for _, bad := range []string{"", "CapEff:\tzz\n"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestExplain(t *testing.T) {
	perm := fmt.Errorf("create veth e1a: %w", unix.EPERM)
	for _, c := range []struct {
		have Set
		need []Cap
		text string
	}{
		{0, []Cap{NetAdmin}, "create veth e1a: operation not permitted (missing CAP_NET_ADMIN: run as root, or grant it)"},
		{1 << NetAdmin, []Cap{NetAdmin, SysAdmin, NetRaw}, "(missing CAP_SYS_ADMIN, CAP_NET_RAW:"},
		{1 << NetAdmin, []Cap{NetAdmin}, "no capability is missing"},
	} {
		err := explain(perm, c.have, c.need)
		if !strings.Contains(err.Error(), c.text) || !errors.Is(err, unix.EPERM) {
			t.Errorf("%v", err)
		}
	}
	other := errors.New("other")
	if Explain(other, NetAdmin) != other || Explain(nil, NetAdmin) != nil {
		t.Error("changed an error that isn't about permission")
	}
	if err := Explain(perm, NetAdmin); !errors.Is(err, unix.EPERM) || err == perm {
		t.Errorf("%v", err)
	} else if again := Explain(err, NetAdmin); again != err {
		t.Errorf("explained twice: %v", again)
	}
}

func TestEffective(t *testing.T) {
	if _, err := Effective(); err != nil {
		t.Fatal(err)
	}
}
