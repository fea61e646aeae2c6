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
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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
	ln, err := listen(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("serve %s: %w", path, err)
	}
	return ln, nil
}

func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := checkSocket(path); err != nil {
		return nil, err
	}
	unlock, err := lockDir(ctx, filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := clear(ctx, path); err != nil {
		return nil, err
	}
	return listenOwnerOnly(path)
}

// checkSocket refuses what can't be the name of a socket.
func checkSocket(path string) error {
	const most = len(unix.RawSockaddrUnix{}.Path) - 1
	switch {
	case path == "":
		return errors.New("the socket has no name (choose another --socket)")
	case path[0] == '@' || strings.ContainsRune(path, 0):
		return errors.New("not the path of a socket (choose another --socket)")
	case len(path) > most:
		return fmt.Errorf("its name is longer than %d bytes (choose another --socket)", most)
	}
	return nil
}

// lockDir keeps daemons that start at the same time from removing each other's new socket as a stale one.
func lockDir(ctx context.Context, dir string) (unlock func(), err error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	for end := time.Now().Add(2 * deathTime); ; time.Sleep(10 * time.Millisecond) {
		if err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return func() { unix.Close(fd) }, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR || time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), unix.Close(fd))
		}
		if ctx.Err() != nil {
			return nil, errors.Join(context.Cause(ctx), unix.Close(fd))
		}
	}
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
	for end := time.Now().Add(deathTime); ; time.Sleep(answerTime / 10) {
		asked, cancel := context.WithTimeout(ctx, answerTime)
		c := NewClient(path)
		_, err = c.Version(asked)
		c.Close()
		cancel()
		if err == nil {
			return errors.New("another daemon answers there (stop it, or choose another --socket)")
		}
		if errors.Is(err, ErrNoDaemon) {
			break // its process is gone
		}
		if errors.Is(err, fs.ErrPermission) {
			return errors.New("the socket is another user's (choose another --socket)")
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
	ln, err := net.Listen("unix", path)
	var no syscall.Errno
	switch {
	case errors.As(err, &no) && (no == unix.EACCES || no == unix.EPERM):
		return nil, fmt.Errorf("%w (run as root, or choose another --socket)", no)
	case errors.As(err, &no) && no == unix.EMFILE:
		return nil, no
	case errors.As(err, &no):
		return nil, fmt.Errorf("%w (choose another --socket)", no) // without the path again
	}
	return ln, err
}
