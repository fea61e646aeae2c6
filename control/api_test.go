package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/internal/netns"
)

// served is a daemon that answers on a socket, without pairs at first.
type served struct {
	*Daemon
	*Client
	socket string
	http   *http.Client
}

func serveDaemon(t *testing.T) *served {
	t.Helper()
	needRoot(t)
	d, err := Start(t.Context(), &epair.Config{Version: epair.Version, Pool: epair.PoolConfig{CPUs: "0,0"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &served{Daemon: d, socket: filepath.Join(t.TempDir(), "s")}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ln, err := Listen(ctx, s.socket)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx, ln) }()
	s.Client = NewClient(s.socket)
	s.http = &http.Client{Transport: s.Client.http.Transport}
	t.Cleanup(func() {
		s.Client.Close()
		stop()
		if err := errors.Join(<-ended, d.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("EPAIR_REQUIRE") == "1" {
		t.Fatal("needs root")
	}
	t.Skip("needs root")
}

// pairOf is pair number i of a test, between two namespaces that are its own.
func pairOf(t *testing.T, i int) epair.PairConfig {
	end := func(side string) epair.EndConfig {
		ns := fmt.Sprintf("epair-api-%d-%s", os.Getpid(), side)
		return epair.EndConfig{Kind: epair.Veth, Name: fmt.Sprintf("e%d", i), Netns: ns}
	}
	return epair.PairConfig{Name: fmt.Sprintf("p%d", i), A: end("a"), B: end("b"), Datapath: "user"}
}

func pairsOf(t *testing.T, n int) (all []epair.PairConfig) {
	for i := range n {
		all = append(all, pairOf(t, i))
	}
	return all
}

// do asks by bare HTTP, as curl does.
func (s *served) do(t *testing.T, method, path string, body io.Reader) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

// refused checks that an answer is an error of one line that names want.
func refused(t *testing.T, status int, text string, wantStatus int, want string) {
	t.Helper()
	var f Failure
	if err := json.Unmarshal([]byte(text), &f); err != nil || status != wantStatus {
		t.Errorf("status %d, want %d; %v in %q", status, wantStatus, err, text)
	}
	if f.Error == "" || strings.Contains(f.Error, "\n") || !strings.Contains(f.Error, want) {
		t.Errorf("error %q doesn't name %q in one line", f.Error, want)
	}
}

func TestLifeOfAPair(t *testing.T) {
	s := serveDaemon(t)
	added, err := s.Client.Add(t.Context(), pairOf(t, 0))
	if err != nil || len(added) != 1 || added[0].State != "up" || added[0].Mode != "pool" || len(added[0].Why) == 0 {
		t.Fatalf("%v %+v", err, added)
	}
	if _, err := s.Client.Add(t.Context(), pairOf(t, 1), pairOf(t, 0)); err == nil || !strings.Contains(err.Error(), "p0") {
		t.Errorf("a name twice: %v", err)
	}
	for _, mode := range []string{"inline", "poller", "pool", "pool"} {
		c, err := s.Client.Set(t.Context(), "p0", PairChange{Mode: mode})
		if err != nil || c.Pair.Mode != mode {
			t.Fatalf("mode %s: %v %+v", mode, err, c)
		}
		p, err := s.Client.Pair(t.Context(), "p0")
		if err != nil || p.Mode != mode || !strings.Contains(strings.Join(p.Why, "\n"), "mode "+mode+": ") {
			t.Errorf("mode %s: %v %+v", mode, err, p)
		}
	}
	status, text := s.do(t, "PATCH", "/v1/pairs/p0", strings.NewReader(`{"datapath":"direct"}`))
	refused(t, status, text, http.StatusConflict, "p0")
	status, text = s.do(t, "PATCH", "/v1/pairs/p1", strings.NewReader(`{"mode":"pool"}`))
	refused(t, status, text, http.StatusNotFound, "p1")
	status, text = s.do(t, "DELETE", "/v1/pairs?name=p0&name=p1", nil)
	refused(t, status, text, http.StatusNotFound, "p1")
	if r, err := s.Client.Remove(t.Context(), "p0"); err != nil || len(r.Removed) != 1 {
		t.Fatalf("%v %+v", err, r)
	}
	status, text = s.do(t, "DELETE", "/v1/pairs/p0", nil)
	refused(t, status, text, http.StatusNotFound, "p0")
	if _, err := netns.Open(pairOf(t, 0).A.Netns); !errors.Is(err, netns.ErrNotExist) {
		t.Errorf("its namespace: %v", err)
	}
	if _, err := s.Client.Add(t.Context(), pairOf(t, 0)); err != nil {
		t.Errorf("again: %v", err)
	}
}

// A batch is added whole or not at all.
func TestAddAllOrNothing(t *testing.T) {
	s := serveDaemon(t)
	all := pairsOf(t, 6)
	for i := range 4 { // several fail at the same time: still an error of one line
		all[i+2].A = epair.EndConfig{Kind: epair.Dev, Name: fmt.Sprintf("not-there-%d", i), Netns: "host"}
	}
	status, text := s.do(t, "POST", "/v1/pairs", body(t, Adding{all}))
	if status/100 == 2 {
		t.Fatal(text)
	}
	refused(t, status, text, status, "not-there-")
	if left := s.Daemon.Pairs(); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
	if left := s.env.Pairs(); len(left) > 0 {
		t.Errorf("left in the kernel: %d pairs", len(left))
	}
	if added, err := s.Client.Add(t.Context(), pairsOf(t, 4)...); err != nil || len(added) != 4 {
		t.Errorf("the names aren't free: %v", err)
	}
}

func body(t *testing.T, v any) io.Reader {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(data)
}

func TestRSSAndPool(t *testing.T) {
	s := serveDaemon(t)
	if _, err := s.Client.Add(t.Context(), pairsOf(t, 2)...); err != nil {
		t.Fatal(err)
	}
	ptr := func(s string) *string { return &s }
	r, err := s.Client.SetRSS(t.Context(), RSSChange{Table: ptr("weight 1 3"), Fields: &map[string]string{"udp4": "sd"}})
	if err != nil || r.RSS.Fields["udp4"] != "sd" || r.RSS.Fields["tcp4"] != "sdfn" || r.RSS.Table[0] != 0 || r.RSS.Table[127] != 1 {
		t.Fatalf("%v %+v", err, r)
	}
	if r, err = s.Client.SetRSS(t.Context(), RSSChange{Func: ptr("xxhash")}); err != nil || r.RSS.Func != "xxhash" || r.RSS.Fields["udp4"] != "sd" {
		t.Fatalf("%v %+v", err, r)
	}
	if is, err := s.Client.RSS(t.Context()); err != nil || is.Func != "xxhash" || is.Table[127] != 1 {
		t.Errorf("%v %+v", err, is)
	}
	// Pairs that come later have the same.
	if _, err := s.Client.Add(t.Context(), pairOf(t, 2)); err != nil {
		t.Error(err)
	}
	if b, err := s.Client.Rebalance(t.Context(), Rebalancing{DryRun: true}); err != nil || b.Done || b.Verdict == "" {
		t.Errorf("%v %+v", err, b)
	}
	if l, err := s.Client.Load(t.Context()); err != nil || len(l.Buckets) != len(r.RSS.Table) {
		t.Errorf("%v %+v", err, l)
	}
	p, err := s.Client.Pool(t.Context())
	if err != nil || p.CPUs != "0,0" || p.Fence.Changes < 2 || len(p.Workers) != 2 {
		t.Errorf("%v %+v", err, p)
	}
	if c, err := s.Client.SetPool(t.Context(), PoolChange{CPUs: "0,0"}); err != nil || c.Pool.CPUs != "0,0" {
		t.Errorf("%v %+v", err, c)
	}
	status, text := s.do(t, "PATCH", "/v1/pool", strings.NewReader(`{"cpus":"0"}`))
	refused(t, status, text, http.StatusConflict, "2 workers")
}
