package load

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/epair-net/epair/bench/wire"
)

// intended must count what gen.c lets go: frame k at phase + ⌊k·period⌋.
func TestIntendedCountsTheDueFrames(t *testing.T) {
	due := func(c *generator, d uint64) (n uint64) {
		for c.phase()+(n*c.period()>>fraction) < d {
			n++
		}
		return n
	}
	for range 200 {
		c := &generator{rate: 1 + rand.Float64()*5e6, ordinal: rand.Float64()}
		d := uint64(rand.IntN(20_000_000))
		if got, want := c.intended(time.Duration(d)), due(c, d); got != want {
			t.Errorf("rate %g, ordinal %g: %d frames due in %d ns, want %d", c.rate, c.ordinal, got, d, want)
		}
	}
}

func TestIntendedOfRoundRates(t *testing.T) {
	for _, rate := range []float64{1, 3, 7, 1000, 48_000, 999_983, 2e6, 1e9} {
		for _, d := range []time.Duration{time.Second, time.Minute, time.Hour} {
			c := &generator{rate: rate}
			want := rate * d.Seconds()
			if got := float64(c.intended(d)); got > want || got < want*(1-1e-6) {
				t.Errorf("%g a second for %s: %g frames", rate, d, got)
			}
		}
	}
}

func TestMixHasItsParts(t *testing.T) {
	n := map[uint16]int{}
	for _, s := range mix(&Config{IMIX: true}) {
		n[s]++
	}
	if len(n) != 3 || n[60] != 28 || n[566] != 16 || n[1514] != 4 {
		t.Errorf("mix %v", n)
	}
}

// Each flow meets every place of the mix, whatever the number of flows.
func TestSkipSpreadsTheMix(t *testing.T) {
	for flows := 1; flows <= 3*mixLen; flows++ {
		seen := map[int]bool{}
		for at, round := 0, 0; round < mixLen; round++ {
			seen[at] = true
			at = (at + flows + int(skip(flows))) % mixLen
		}
		if len(seen) != mixLen {
			t.Errorf("%d flows: a flow meets %d of %d places", flows, len(seen), mixLen)
		}
	}
}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	good := Config{CPUs: []int{0}, Flows: 1, Size: 60}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Config){
		"no cpu":     func(c *Config) { c.CPUs = nil },
		"cpu -1":     func(c *Config) { c.CPUs = []int{2, -1} },
		"twice":      func(c *Config) { c.CPUs, c.Flows = []int{1, 1}, 2 },
		"0 flows":    func(c *Config) { c.Flows = 0 },
		"1 flows":    func(c *Config) { c.CPUs = []int{0, 1} },
		"frame size": func(c *Config) { c.Size = wire.MaxSize + 1 },
		"rate":       func(c *Config) { c.Rate = -1 },
		"burst":      func(c *Config) { c.Burst = -1 },
	} {
		c := good
		spoil(&c)
		if err := c.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
