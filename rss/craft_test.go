package rss

import (
	"strings"
	"testing"
)

func TestCraft(t *testing.T) {
	for _, c := range []struct {
		cfg    Config
		like   string
		table  string
		worker int
		n      int
		err    string
	}{
		{Config{}, "tcp 10.0.0.1:5000 10.0.0.2:80", "equal", 3, 20, ""},
		{Config{Func: "xxhash"}, "tcp 10.0.0.1:65530 10.0.0.2:80", "equal", 0, 20, ""},
		{Config{Symmetric: true}, "udp [2001:db8::1]:53 [2001:db8::2]:999", "weight 1 1 1 61", 0, 20, ""},
		{Config{Fields: map[string]string{"tcp4": "sd"}}, "tcp 10.0.0.1:5000 10.0.0.2:80", "equal", 2, 5, ""},
		{Config{}, "icmp 10.0.0.1 10.0.0.2", "equal", 1, 5, ""},
		{Config{}, "tcp 10.0.0.1:5000 10.0.0.2:80", "equal", 4, 1, "no worker 4"},
		{Config{}, "tcp 10.0.0.1:5000 10.0.0.2:80", "equal", -1, 1, "no worker -1"},
		{Config{}, "tcp 10.0.0.1:5000 10.0.0.2:80", "equal 2", 2, 1, "owns no bucket"},
		{Config{Fields: map[string]string{"tcp4": "d"}}, "tcp 10.0.0.1:5000 10.0.0.2:80", "equal", 1, 1, "neither source port"},
		{Config{}, "icmp 255.255.255.255 10.0.0.2", "equal", 1, 9, "found"},
	} {
		h, err := New(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		like, err := ParseTuple(c.like)
		if err != nil {
			t.Fatal(err)
		}
		tab := table(t, c.table, 64, 4)
		flows, err := Craft(h, tab, like, c.worker, c.n)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s on worker %d: %v, want %q", c.like, c.worker, err, c.err)
			}
			continue
		}
		if err != nil || len(flows) != c.n {
			t.Errorf("%s on worker %d: %d flows, %v", c.like, c.worker, len(flows), err)
			continue
		}
		seen := map[Tuple]bool{}
		for _, f := range flows {
			hash, err := h.HashTuple(f)
			if err != nil || tab.Worker(tab.Bucket(hash)) != c.worker {
				t.Errorf("%s lands on worker %d, want %d (%v)", f, tab.Worker(tab.Bucket(hash)), c.worker, err)
			}
			if seen[f] || f.Dst != like.Dst || f.Proto != like.Proto {
				t.Errorf("%s: the same twice, or not like %s", f, like)
			}
			seen[f] = true
		}
	}
}
