package control

import (
	"os"
	"testing"
)

func TestDoctor(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("EPAIR_REQUIRE") == "1" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	r := Doctor()
	if len(r.CPUs) == 0 {
		t.Error("no CPUs")
	}
	if len(r.Cells) != 6*3 {
		t.Errorf("%d cells, want 18", len(r.Cells))
	}
	for _, c := range r.Cells {
		if !c.OK {
			t.Errorf("root has no %+v", c)
		}
		if !c.OK && (c.Reason == "" || c.Cure == "") {
			t.Errorf("%s: no reason or no cure", c.Name)
		}
	}
}

// A cell is refused for the reason of what it lacks.
func TestCellNeeds(t *testing.T) {
	lacking := Check{Name: "tap ends", Reason: "no such file", Cure: "load it"}
	got := cell("user-tap/pool", []Check{{Name: "namespace", OK: true}, lacking})
	if got.OK || got.Reason != "tap ends: no such file" || got.Cure != "load it" {
		t.Errorf("%+v", got)
	}
}
