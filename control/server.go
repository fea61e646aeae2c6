package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

// handler answers the API.
//
//	GET /v1/pairs         all pairs      {"pairs":[…]}
//	GET /v1/pairs/NAME    one pair
//	GET /v1/stat          pairs and workers
//	GET /v1/audit         whether the ledgers balance
//	GET /v1/version       what is running
func (d *Daemon) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/pairs", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, Stat{Pairs: d.Pairs()})
	})
	mux.HandleFunc("GET /v1/pairs/{name}", func(w http.ResponseWriter, r *http.Request) {
		p, ok := d.Pair(r.PathValue("name"))
		if !ok {
			refuse(w, http.StatusNotFound, fmt.Errorf("show pair %s: no such pair (see 'epair list')", r.PathValue("name")))
			return
		}
		answer(w, p)
	})
	mux.HandleFunc("GET /v1/stat", func(w http.ResponseWriter, _ *http.Request) { answer(w, d.Stat()) })
	mux.HandleFunc("GET /v1/audit", func(w http.ResponseWriter, _ *http.Request) { answer(w, d.Audit()) })
	mux.HandleFunc("GET /v1/version", func(w http.ResponseWriter, _ *http.Request) {
		v := ThisVersion()
		v.PID = os.Getpid()
		answer(w, v)
	})
	return mux
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	// The client may have gone: then nobody is left to tell.
	_ = enc.Encode(v)
}

func refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(apiError{err.Error()})
}

// Listen opens the API's socket, for its owner only. A socket that a crash left
// behind is replaced; one that a daemon still serves is refused.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	if err := clear(ctx, path); err != nil {
		return nil, fmt.Errorf("serve %s: %w", path, err)
	}
	ln, err := listenOwnerOnly(path)
	if err != nil {
		return nil, fmt.Errorf("serve %s: %w", path, err)
	}
	return ln, nil
}

// A daemon that was killed keeps its socket until the kernel has freed what it
// held: it accepts, but no longer answers.
const (
	answerTime = 250 * time.Millisecond
	deathTime  = 3 * time.Second
)

// clear removes a socket that nobody serves.
func clear(ctx context.Context, path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode()&fs.ModeSocket == 0 {
		return errors.New("the file exists and is not a socket (choose another --socket)")
	}
	for end := time.Now().Add(deathTime); ; {
		conn, err := net.DialTimeout("unix", path, answerTime)
		if err != nil {
			break // refused: its process is gone
		}
		conn.Close()
		asked, cancel := context.WithTimeout(ctx, answerTime)
		_, err = NewClient(path).Version(asked)
		cancel()
		if err == nil {
			return errors.New("another daemon answers there (stop it, or choose another --socket)")
		}
		if time.Now().After(end) {
			return errors.New("a process holds the socket and doesn't answer (stop it, or choose another --socket)")
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove stale socket: %w", err)
	}
	return nil
}

// listenOwnerOnly binds path with mode 0600 from its first moment on.
func listenOwnerOnly(path string) (net.Listener, error) {
	defer syscall.Umask(syscall.Umask(0o177))
	return net.Listen("unix", path)
}
