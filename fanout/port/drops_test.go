package port

import (
	"regexp"
	"testing"
)

func TestReasonNames(t *testing.T) {
	seen := map[string]Reason{}
	name := regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`) // of a metric's label
	for r := Reason(0); r < NumReasons; r++ {
		s := r.String()
		if !name.MatchString(s) {
			t.Errorf("reason %d is called %q", r, s)
		}
		if o, ok := seen[s]; ok {
			t.Errorf("reasons %d and %d are both called %q", o, r, s)
		}
		seen[s] = r
	}
}

func TestDropsAddUp(t *testing.T) {
	var a, b Drops
	for i := range a {
		a[i], b[i] = uint64(i), uint64(100*i)
	}
	before := a
	b.Add(&a)
	for i := range b {
		if b[i] != uint64(101*i) {
			t.Errorf("%s: %d, want %d", Reason(i), b[i], 101*i)
		}
	}
	if a != before {
		t.Error("Add changed its argument")
	}
	sum := uint64(0)
	for i := range b {
		sum += uint64(101 * i)
	}
	if b.Total() != sum || (&Drops{}).Total() != 0 {
		t.Errorf("total %d, want %d", b.Total(), sum)
	}
}
