package baseline

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/epair-net/epair/bench/subject"
	"github.com/epair-net/epair/internal/netns"
)

// How long a process may take to be ready, and to end when asked.
const (
	startTime = 30 * time.Second
	stopTime  = 5 * time.Second
)

// process is a program that forwards.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{} // closed when it has
	once  sync.Once

	mu    sync.Mutex
	cause string // first line of its output that looks like an error, or else the last
}

// find returns the path of a program, or ErrAbsent.
func find(name, pkg string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: %s isn't installed (Debian's package %s has it)", subject.ErrAbsent, name, pkg)
	}
	return path, nil
}

// start starts a program in a namespace and returns when a line of its output contains ready. It ends when its
// standard input does, when it is closed, or with us.
// env is added to our environment.
func start(ctx context.Context, ns *netns.NS, ready string, env []string, argv ...string) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p.cmd.Env = append(os.Environ(), env...)
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, w := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := ns.Do(p.cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	seen := make(chan struct{})
	go p.read(out, ready, seen)
	go func() {
		w.CloseWithError(p.cmd.Wait())
		close(p.ended)
	}()
	select {
	case <-seen:
		return p, nil
	case <-p.ended:
		err = errors.New("it ended")
	case <-time.After(startTime):
		err = fmt.Errorf("not ready after %s", startTime)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, errors.Join(fmt.Errorf("start %s: %w (it said: %s)", argv[0], err, p.said()), p.Close())
}

// read takes all output, so that the process never waits for us.
func (p *process) read(out io.Reader, ready string, seen chan<- struct{}) {
	complaint := regexp.MustCompile(`(?i)error|fail|cannot|can't|not |invalid`)
	found := false
	sc := bufio.NewScanner(out)
	for sc.Scan() {
		line := strings.TrimSpace(sc.Text())
		if strings.Contains(line, ready) && seen != nil {
			close(seen)
			seen = nil
		}
		if line == "" || found {
			continue
		}
		found = complaint.MatchString(line)
		p.mu.Lock()
		p.cause = line
		p.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, out) // a line too long for the scanner
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause
}

// Close asks the process to end, and makes it. It is idempotent.
func (p *process) Close() error {
	p.once.Do(func() {
		_ = p.stdin.Close()
		for _, sig := range []syscall.Signal{0, syscall.SIGTERM, syscall.SIGKILL} {
			if sig != 0 {
				_ = p.cmd.Process.Signal(sig) // it may have ended
			}
			select {
			case <-p.ended:
				return
			case <-time.After(stopTime / 2):
			}
		}
		<-p.ended
	})
	return nil
}
