package control

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// asNobody marks the process that TestDoctorWithoutPrivileges starts.
const asNobody = "EPAIR_TEST_DOCTOR_AS_NOBODY"

// TestDoctorWithoutPrivileges: without any capability every cell is refused, and the reason names
// what is missing.
func TestDoctorWithoutPrivileges(t *testing.T) {
	if os.Getenv(asNobody) != "" {
		if err := json.NewEncoder(os.Stdout).Encode(Doctor()); err != nil {
			t.Fatal(err)
		}
		os.Exit(0) // so that the report is all that was printed
	}
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("EPAIR_REQUIRE") == "1":
		t.Fatal("needs root")
	default:
		t.Skip("needs root")
	}
	// The link, not the path behind it, which others than root may be unable to reach.
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), asNobody+"=1")
	cmd.Dir, cmd.Stderr = "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run as nobody: %v\n%s", err, out)
	}
	var r Report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if len(r.CPUs) == 0 {
		t.Error("no CPUs, although they need no privilege")
	}
	for _, c := range r.Cells {
		if c.OK || c.Cure == "" {
			t.Errorf("%+v", c)
		}
		if strings.HasPrefix(c.Name, "user-") && !strings.Contains(c.Reason, "CAP_SYS_ADMIN") {
			t.Errorf("%s: the reason doesn't name the capability: %s", c.Name, c.Reason)
		}
	}
}
