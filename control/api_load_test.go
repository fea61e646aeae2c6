package control

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/epair-net/epair/epair"
	"github.com/epair-net/epair/internal/netns"
)

// Questions are answered while pairs are being created.
func TestStatDuringAdd(t *testing.T) {
	s := serveDaemon(t)
	var adding atomic.Bool
	adding.Store(true)
	done := make(chan error, 1)
	go func() {
		_, err := s.Client.Add(t.Context(), pairsOf(t, 10)...)
		adding.Store(false)
		done <- err
	}()
	answered := 0
	for adding.Load() {
		if _, err := s.Client.Stat(t.Context()); err != nil {
			t.Fatal(err)
		}
		if adding.Load() {
			answered++
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if answered == 0 {
		t.Error("no question was answered meanwhile")
	}
	t.Logf("%d questions were answered meanwhile", answered)
}

// Pairs come and go in batches, and nothing is left of them.
func TestBatches(t *testing.T) {
	s := serveDaemon(t)
	const n = 50
	all := pairsOf(t, 2*n)
	var names []string
	for i := range all {
		all[i].Mode = "inline" // with a socket per end, not per worker: it's faster
		names = append(names, all[i].Name)
	}
	for _, part := range [][]epair.PairConfig{all[:n], all[n:]} {
		if _, err := s.Client.Add(t.Context(), part...); err != nil {
			t.Fatal(err)
		}
	}
	stat, err := s.Client.Stat(t.Context())
	if err != nil || len(stat.Pairs) != 2*n || len(stat.Workers) != 2 {
		t.Fatalf("%v, %d pairs, %d workers", err, len(stat.Pairs), len(stat.Workers))
	}
	for i, p := range stat.Pairs {
		if p.Name != names[i] || p.State != "up" {
			t.Errorf("pair %d is %s, %s", i, p.Name, p.State)
		}
	}
	if r, err := s.Client.Remove(t.Context(), names...); err != nil || len(r.Removed) != 2*n {
		t.Fatalf("%v %+v", err, r)
	}
	if left, kernel := s.Daemon.Pairs(), s.env.Pairs(); len(left)+len(kernel) > 0 {
		t.Errorf("%d pairs and %d in the kernel are left", len(left), len(kernel))
	}
	for _, e := range []epair.EndConfig{all[0].A, all[0].B} {
		if _, err := netns.Open(e.Netns); !errors.Is(err, netns.ErrNotExist) {
			t.Errorf("namespace %s: %v", e.Netns, err)
		}
	}
}

// A thousand calls at once, some of which change what others ask for.
func TestConcurrentCalls(t *testing.T) {
	s := serveDaemon(t)
	if _, err := s.Client.Add(t.Context(), pairsOf(t, 3)...); err != nil {
		t.Fatal(err)
	}
	calls := []struct{ method, path, body string }{
		{"GET", "/v1/stat", ""}, {"GET", "/v1/pairs", ""}, {"GET", "/v1/pairs/p0", ""}, {"GET", "/v1/audit", ""}, {"GET", "/v1/pool", ""},
		{"GET", "/v1/rss", ""}, {"GET", "/metrics", ""}, {"GET", "/v1/version", ""},
		{"PATCH", "/v1/pairs/p0", `{"mode":"inline"}`}, {"PATCH", "/v1/pairs/p0", `{"mode":"pool"}`},
		{"PATCH", "/v1/rss", `{"table":"weight 1 2"}`}, {"PATCH", "/v1/rss", `{"table":"equal"}`},
		{"PATCH", "/v1/pairs/p1", `{"mode":"poller"}`}, {"PATCH", "/v1/pool", `{"cpus":"0,0"}`},
		{"DELETE", "/v1/pairs/p2", ""}, {"POST", "/v1/pairs", "p2"}, {"POST", "/v1/pairs", `{"pairs":[`}, {"DELETE", "/v1/pairs/none", ""},
	}
	var wg sync.WaitGroup
	var answered atomic.Int64
	for i := range 1000 {
		c := calls[i%len(calls)]
		var in io.Reader = strings.NewReader(c.body)
		if c.body == "p2" {
			in = body(t, Adding{[]epair.PairConfig{pairOf(t, 2)}})
		}
		wg.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), c.method, "http://x"+c.path, in)
			if err != nil {
				t.Error(err)
				return
			}
			res, err := s.http.Do(req)
			if err != nil {
				t.Errorf("%s %s: %v", c.method, c.path, err)
				return
			}
			defer res.Body.Close()
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				t.Errorf("%s %s: %v", c.method, c.path, err)
			}
			// Busy, taken and gone pairs are refused; metrics of more than a few readers too.
			switch res.StatusCode {
			case 200, 201, 400, 404, 409, 503:
				answered.Add(1)
			default:
				t.Errorf("%s %s: %s", c.method, c.path, res.Status)
			}
		})
	}
	wg.Wait()
	if n := answered.Load(); n != 1000 {
		t.Errorf("%d of 1000 calls were answered", n)
	}
	if a := s.Daemon.Audit(); len(a.Findings) > 0 {
		t.Errorf("%+v", a.Findings)
	}
	if _, err := s.Client.Version(t.Context()); err != nil {
		t.Error(err)
	}
}

// A client that goes in the middle harms nobody.
func TestHalfClosed(t *testing.T) {
	s := serveDaemon(t)
	for _, text := range []string{
		"", "GET", "GET /v1/stat HTTP/1.1\r\nHost: x\r\n", "\x00\xff\r\n\r\n", "GET /v1/stat HTTP/1.1\r\n\r\n",
		"POST /v1/pairs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"pairs\":",
		"POST /v1/pairs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"pai\r\nzz\r\n",
	} {
		conn, err := net.Dial("unix", s.socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, text); err != nil {
			t.Error(err)
		}
		if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
			t.Error(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Error(err)
		}
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Errorf("%q: the connection stays open: %v", text, err)
		}
		if strings.Contains(string(answer), " 200 ") || strings.Contains(string(answer), " 201 ") {
			t.Errorf("%q: %q", text, answer)
		}
		conn.Close()
	}
	if pairs, err := s.Client.Pairs(t.Context()); err != nil || len(pairs) > 0 {
		t.Errorf("%v %+v", err, pairs)
	}
}

// Close waits for a change that is under way, and later ones are refused.
func TestCloseDuringAdd(t *testing.T) {
	s := serveDaemon(t)
	added := make(chan error, 1)
	go func() {
		_, err := s.Daemon.Add(context.Background(), pairsOf(t, 16))
		added <- err
	}()
	for len(s.env.Pairs()) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := s.Daemon.Close(); err != nil {
		t.Error(err)
	}
	if err := <-added; err != nil && !errors.Is(err, ErrStopping) {
		t.Error(err)
	}
	status, text := s.do(t, "POST", "/v1/pairs", body(t, Adding{pairsOf(t, 1)}))
	refused(t, status, text, http.StatusServiceUnavailable, "stopping")
	if _, err := netns.Open(pairOf(t, 0).A.Netns); !errors.Is(err, netns.ErrNotExist) {
		t.Errorf("its namespace: %v", err)
	}
}
