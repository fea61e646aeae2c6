package control

import (
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
)

// DefaultSocket is where a daemon answers when nothing else is said.
const DefaultSocket = "/run/epair.sock"

// Client asks a daemon. Its zero value is not usable; see NewClient.
type Client struct {
	http   http.Client
	socket string
}

// NewClient returns a client for the daemon at the Unix socket path.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	return &Client{
		http:   http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: 10 * time.Second},
		socket: path,
	}
}

// Pairs returns all pairs, by name.
func (c *Client) Pairs(ctx context.Context) ([]Pair, error) {
	var s Stat
	err := c.get(ctx, "/v1/pairs", &s)
	return s.Pairs, err
}

// Pair returns one pair.
func (c *Client) Pair(ctx context.Context, name string) (p Pair, err error) {
	return p, c.get(ctx, "/v1/pairs/"+url.PathEscape(name), &p)
}

// Stat returns all counters.
func (c *Client) Stat(ctx context.Context) (s Stat, err error) { return s, c.get(ctx, "/v1/stat", &s) }

// Audit lets the daemon check its ledgers.
func (c *Client) Audit(ctx context.Context) (a Audit, err error) {
	return a, c.get(ctx, "/v1/audit", &a)
}

// Version returns what is running.
func (c *Client) Version(ctx context.Context) (v Version, err error) {
	return v, c.get(ctx, "/v1/version", &v)
}

func (c *Client) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://epair"+path, nil)
	if err != nil {
		return err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return c.explain(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return readError(res)
	}
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		return fmt.Errorf("read answer of %s: %w", c.socket, err)
	}
	return nil
}

// explain makes one line of a connection error.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("ask daemon at %s: none is running there (start one with 'epair run -f FILE', or name its --socket)", c.socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("ask daemon at %s: permission denied (run as the daemon's user)", c.socket)
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	return fmt.Errorf("ask daemon at %s: %w", c.socket, err)
}

// apiError is the body of every answer that isn't 200.
type apiError struct {
	Error string `json:"error"`
}

func readError(res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return err
	}
	var e apiError
	if json.Unmarshal(body, &e) == nil && e.Error != "" {
		return errors.New(e.Error)
	}
	return fmt.Errorf("daemon answered %s", res.Status)
}
