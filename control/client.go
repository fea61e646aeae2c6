package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/epair-net/epair/epair"
)

// DefaultSocket is where a daemon answers when nothing else is said.
const DefaultSocket = "/run/epair.sock"

// ErrNoDaemon says that nobody serves a socket, or that it isn't there.
var ErrNoDaemon = errors.New("none is running there")

// answerTimeout bounds a question. A change takes as long as it takes.
const answerTimeout = 10 * time.Second

// Client asks a daemon. Its zero value is not usable; see NewClient.
//
// Concurrency contract: all methods may be called from any goroutine.
type Client struct {
	http   http.Client
	socket string
}

// NewClient returns a client for the daemon at the Unix socket path.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	return &Client{http: http.Client{Transport: &http.Transport{DialContext: dial}}, socket: path}
}

// Close lets the connections go that are open for a next question.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Pairs returns all pairs, in the order in which they were added.
func (c *Client) Pairs(ctx context.Context) ([]Pair, error) {
	p, err := get[Pairs](ctx, c, "/v1/pairs")
	return p.Pairs, err
}

// Pair returns one pair.
func (c *Client) Pair(ctx context.Context, name string) (Pair, error) {
	return get[Pair](ctx, c, "/v1/pairs/"+url.PathEscape(name))
}

// Stat returns all counters.
func (c *Client) Stat(ctx context.Context) (Stat, error) { return get[Stat](ctx, c, "/v1/stat") }

// Audit lets the daemon check its ledgers.
func (c *Client) Audit(ctx context.Context) (Audit, error) { return get[Audit](ctx, c, "/v1/audit") }

// Version returns what is running.
func (c *Client) Version(ctx context.Context) (Version, error) {
	return get[Version](ctx, c, "/v1/version")
}

// RSS returns which worker owns which flow.
func (c *Client) RSS(ctx context.Context) (RSS, error) { return get[RSS](ctx, c, "/v1/rss") }

// Pool returns the workers.
func (c *Client) Pool(ctx context.Context) (Pool, error) { return get[Pool](ctx, c, "/v1/pool") }

// Add creates pairs, all or none.
func (c *Client) Add(ctx context.Context, pairs ...epair.PairConfig) ([]Pair, error) {
	p, err := request[Pairs](ctx, c, http.MethodPost, "/v1/pairs", Adding{pairs})
	return p.Pairs, err
}

// Remove removes pairs, all or, if one of the names is unknown, none.
func (c *Client) Remove(ctx context.Context, names ...string) (Removed, error) {
	q := url.Values{"name": names}
	return request[Removed](ctx, c, http.MethodDelete, "/v1/pairs?"+q.Encode(), nil)
}

// Set changes a pair while its frames pass.
func (c *Client) Set(ctx context.Context, name string, want PairChange) (Changed, error) {
	return request[Changed](ctx, c, http.MethodPatch, "/v1/pairs/"+url.PathEscape(name), want)
}

// SetRSS changes hash and table of all pairs while their frames pass.
func (c *Client) SetRSS(ctx context.Context, want RSSChange) (RSSChanged, error) {
	return request[RSSChanged](ctx, c, http.MethodPatch, "/v1/rss", want)
}

// Load measures the load of each bucket.
func (c *Client) Load(ctx context.Context) (Loads, error) { return get[Loads](ctx, c, "/v1/rss/load") }

// Rebalance moves buckets by measured load, or says what that would do.
func (c *Client) Rebalance(ctx context.Context, want Rebalancing) (Rebalanced, error) {
	return request[Rebalanced](ctx, c, http.MethodPost, "/v1/rss/rebalance", want)
}

// SetPool moves the workers to other CPUs while they forward.
func (c *Client) SetPool(ctx context.Context, want PoolChange) (PoolChanged, error) {
	return request[PoolChanged](ctx, c, http.MethodPatch, "/v1/pool", want)
}

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return request[T](ctx, c, http.MethodGet, path, nil)
}

// request asks for path, with body as JSON unless it is nil.
func request[T any](ctx context.Context, c *Client, method, path string, body any) (into T, err error) {
	var data bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&data).Encode(body); err != nil {
			return into, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://epair"+path, &data)
	if err != nil {
		return into, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return into, c.explain(err)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return into, readError(res)
	}
	if err := json.NewDecoder(res.Body).Decode(&into); err != nil {
		if ctx.Err() != nil {
			err = c.explain(ctx.Err())
		}
		return into, fmt.Errorf("read answer of %s: %w", c.socket, err)
	}
	return into, nil
}

// explain makes one line of a connection error.
func (c *Client) explain(err error) error {
	if err := checkSocket(c.socket); err != nil {
		return fmt.Errorf("ask daemon at %q: %w", c.socket, err)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("ask daemon at %s: no answer in time (is it stopped, or its machine overloaded?)", c.socket)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("ask daemon at %s: interrupted", c.socket)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("ask daemon at %s: %w (start one with 'epair run -f FILE', or name its --socket)", c.socket, ErrNoDaemon)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("ask daemon at %s: %w (run as the daemon's user)", c.socket, fs.ErrPermission)
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	return fmt.Errorf("ask daemon at %s: %w", c.socket, err)
}

// Refusal is what the daemon said instead of doing what was asked.
type Refusal struct {
	Status int // of HTTP
	Msg    string
}

func (r *Refusal) Error() string { return r.Msg }

// Is tells what is wrong with the request from what went wrong with it.
func (r *Refusal) Is(target error) bool {
	return target == ErrRequest && r.Status == http.StatusBadRequest
}

func readError(res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return err
	}
	var f Failure
	if json.Unmarshal(body, &f) != nil || f.Error == "" {
		f.Error = "daemon answered " + res.Status
	}
	return &Refusal{res.StatusCode, f.Error}
}
