package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

// Serve answers the API on ln until ctx ends.
func (d *Daemon) Serve(ctx context.Context, ln net.Listener) error {
	return serve(ctx, ln, d.handler())
}

// ServeMetrics answers /metrics on ln, and nothing else, until ctx ends.
func (d *Daemon) ServeMetrics(ctx context.Context, ln net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", d.metrics())
	return serve(ctx, ln, mux)
}

func serve(ctx context.Context, ln net.Listener, h http.Handler) error {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, IdleTimeout: idleTime,
		MaxHeaderBytes: 64 << 10,                   // the names of 500 pairs that are to be deleted
		ErrorLog:       log.New(io.Discard, "", 0), // what clients do wrong they are told
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // Serve returns what there is to say
	defer stop()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve api: %w", err)
	}
	return nil
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
		c := NewClient(path)
		_, err = c.Version(asked)
		c.Close()
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
