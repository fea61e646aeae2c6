package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// anon makes a namespace, or skips (fails with EPAIR_REQUIRE=1) where that isn't allowed.
func anon(t testing.TB) *NS {
	t.Helper()
	n, err := NewAnonymous()
	if errors.Is(err, unix.EPERM) && os.Getenv("EPAIR_REQUIRE") != "1" {
		t.Skip(err, "(needs CAP_SYS_ADMIN)")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// here is the namespace of the calling thread.
func here() (ID, error) {
	fd, err := openSelf()
	if err != nil {
		return ID{}, err
	}
	n, err := adopt(fd)
	if err != nil {
		return ID{}, err
	}
	return n.id, n.Close()
}

func mustHere(t testing.TB) ID {
	t.Helper()
	id, err := here()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestDoRunsInside(t *testing.T) {
	n := anon(t)
	home := mustHere(t)
	var inside ID
	var links []net.Interface
	err := n.Do(func() (err error) {
		if inside, err = here(); err != nil {
			return err
		}
		links, err = net.Interfaces()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if inside != n.ID() || inside == home {
		t.Errorf("ran in %v, want %v (home %v)", inside, n.ID(), home)
	}
	if len(links) == 0 || links[0].Name != "lo" {
		t.Errorf("links of a new namespace: %v", links)
	}
	if got := mustHere(t); got != home {
		t.Errorf("caller is in %v, was in %v", got, home)
	}
}

func TestDoReturnsTheError(t *testing.T) {
	n := anon(t)
	want := errors.New("no")
	if err := n.Do(func() error { return want }); err != want {
		t.Errorf("got %v", err)
	}
	if err := n.Do(func() error { runtime.Goexit(); return nil }); !errors.Is(err, errExited) {
		t.Errorf("exited goroutine: %v", err)
	}
	if err := Do(-1, func() error { t.Error("ran"); return nil }); !errors.Is(err, unix.EBADF) {
		t.Errorf("bad descriptor: %v", err)
	}
}

// Every thread of the process must be at home after any mix of calls, and
// goroutines started inside run at home.
func TestThreadsStayAtHome(t *testing.T) {
	home := mustHere(t)
	spaces := []*NS{anon(t), anon(t), anon(t)}
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			for j := range 40 {
				n := spaces[(i+j)%len(spaces)]
				if err := visit(n, home); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if id, err := here(); err != nil || id != home {
					t.Errorf("an innocent goroutine is in %v, not %v: %v", id, home, err)
					return
				}
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(tasks) == 0 {
		t.Fatal(len(tasks), err)
	}
	for _, p := range tasks {
		n, err := openPath(p)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // a thread that ended
		}
		if err != nil {
			t.Fatal(err)
		}
		if n.ID() != home {
			t.Errorf("%s is in %v, not %v", p, n.ID(), home)
		}
		n.Close()
	}
}

// visit enters n, starts goroutines there that block (so that the runtime needs more threads), and
// sometimes leaves by an error or an exit.
func visit(n *NS, home ID) error {
	err := n.Do(func() error {
		id, err := here()
		if err != nil || id != n.ID() {
			return fmt.Errorf("inside: in %v, not %v: %w", id, n.ID(), err)
		}
		child := make(chan error)
		go func() {
			ts := unix.NsecToTimespec(int64(100 * time.Microsecond))
			_ = unix.Nanosleep(&ts, nil)
			id, err := here()
			if err == nil && id != home {
				err = fmt.Errorf("a goroutine started inside is in %v, not at home", id)
			}
			child <- err
		}()
		return <-child
	})
	return err
}

// A thread that can't come back must not be used again.
func TestLostThreadIsDestroyed(t *testing.T) {
	n := anon(t)
	home := mustHere(t)
	tid := 0
	err := n.Do(func() error {
		tid = unix.Gettid()
		// Close what within goes home by: every descriptor of the home namespace that this call opened.
		return closeAllOf(home)
	})
	if err != nil {
		t.Fatal(err)
	}
	if tid == unix.Getpid() {
		t.Skip("ran on the main thread, which the runtime parks instead")
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid)); errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("thread %d lives on in the wrong namespace", tid)
		}
		runtime.Gosched()
	}
}

func closeAllOf(id ID) error {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	closed := 0
	for _, e := range fds {
		var fd int
		fmt.Sscan(e.Name(), &fd)
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && (ID{st.Dev, st.Ino}) == id {
			closed++
			unix.Close(fd)
		}
	}
	if closed == 0 {
		return errors.New("found no descriptor of the home namespace")
	}
	return nil
}

func TestOpen(t *testing.T) {
	home := mustHere(t)
	anon(t) // skips without the privilege
	name := fmt.Sprintf("nst%d", os.Getpid())
	named, err := Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { named.Close(); Delete(name) })
	for _, c := range []struct {
		ref  string
		want ID
	}{
		{"host", home},
		{fmt.Sprintf("pid:%d", os.Getpid()), home},
		{name, named.ID()},
		{"/run/netns/" + name, named.ID()},
		{fmt.Sprintf("/proc/self/fd/%d", named.FD()), named.ID()},
	} {
		n, err := Open(c.ref)
		if err != nil {
			t.Errorf("%s: %v", c.ref, err)
			continue
		}
		if n.ID() != c.want {
			t.Errorf("%s: %v, want %v", c.ref, n.ID(), c.want)
		}
		if n.Is(named) != (c.want == named.ID()) {
			t.Errorf("%s: Is is wrong", c.ref)
		}
		if err := errors.Join(n.Close(), n.Close()); err != nil {
			t.Error(err)
		}
	}
	// "host" means the process's namespace also for a caller who is inside another.
	err = named.Do(func() error {
		n, err := Open(Host)
		if err != nil {
			return err
		}
		if n.ID() != home {
			t.Errorf("host from inside: %v, want %v", n.ID(), home)
		}
		return n.Close()
	})
	if err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ref  string
		is   error
		text string
	}{
		{"", ErrInvalid, "empty"},
		{"..", ErrInvalid, `".."`},
		{"a\nb", ErrInvalid, `"a\nb"`},
		{"a\x1b[31m", ErrInvalid, "can't be a name"},
		{fifo, ErrNotNetns, "not a network namespace"},
		{"pid:", ErrInvalid, "pid:N"},
		{"pid:0", ErrInvalid, "pid:N"},
		{"pid:x", ErrInvalid, "pid:N"},
		{"pid:-1", ErrInvalid, "pid:N"},
		{strings.Repeat("n", 256), ErrInvalid, "255"},
		{"surely-not-there", ErrNotExist, "open namespace surely-not-there"},
		{"pid:2147483647", ErrNotExist, "pid:2147483647"},
		{plain, nil, "not a network namespace"},
		{"/proc/self/ns/mnt", nil, "not a network namespace"},
	} {
		n, err := Open(c.ref)
		if err == nil {
			n.Close()
			t.Errorf("%q: opened", c.ref)
			continue
		}
		if c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", c.ref, err)
		}
	}
}

func TestCreateAndDelete(t *testing.T) {
	anon(t)
	name := fmt.Sprintf("nsc%d", os.Getpid())
	n, err := Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close(); Delete(name) })
	if _, err := Create(name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second create: %v", err)
	}
	if ip, err := exec.LookPath("ip"); err == nil {
		out, err := exec.Command(ip, "netns", "exec", name, "ip", "-o", "link").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "lo:") {
			t.Errorf("ip netns exec: %v %s", err, out)
		}
	}
	for range 2 {
		if err := Delete(name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(name); !errors.Is(err, ErrNotExist) {
		t.Errorf("after delete: %v", err)
	}
	for _, bad := range []string{"", "host", "pid:1", "a/b", ".."} {
		if _, err := Create(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("create %q: %v", bad, err)
		}
		if err := Delete(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("delete %q: %v", bad, err)
		}
	}
}

// A name whose namespace is gone (left by a reboot or a lazy umount) says so and can be removed.
func TestStaleName(t *testing.T) {
	anon(t)
	name := fmt.Sprintf("nss%d", os.Getpid())
	if err := os.MkdirAll(RunDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(RunDir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Delete(name) })
	if _, err := Open(name); err == nil || !strings.Contains(err.Error(), "ip netns del") {
		t.Errorf("open: %v", err)
	}
	if err := Delete(name); err != nil {
		t.Error(err)
	}
}

// Many at once, and neither descriptors nor names are left.
func TestNothingIsLeft(t *testing.T) {
	anon(t).Close()
	before := openFDs(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			name := fmt.Sprintf("nsm%d-%d", os.Getpid(), i)
			n, err := Create(name)
			if err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(n.Do(func() error { return nil }), n.Close(), Delete(name)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors, were %d", after, before)
	}
	left, err := filepath.Glob(filepath.Join(RunDir, fmt.Sprintf("nsm%d-*", os.Getpid())))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

func openFDs(t testing.TB) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}
