package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// screen is a terminal that shows one page at a time and gives keys at once. It is ours and small since
// libraries that do this ask the terminal for its colours when the program starts, whichever command it
// runs, and wait seconds for those that don't answer.
//
// Concurrency contract: one goroutine, but for what keys reads.
type screen struct {
	in    *os.File
	out   io.Writer
	fd    int // of the output
	saved *unix.Termios
}

// Sequences of xterm and its kin (ECMA-48; ctlseqs).
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the alternate one, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	homeClear   = "\x1b[H"
	clearRight  = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// hasTermios tells whether fd is a terminal.
func hasTermios(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// openScreen takes the terminal until close.
func openScreen(in *os.File, out io.Writer, fd int) (*screen, error) {
	s := &screen{in: in, out: out, fd: fd}
	var err error
	if s.saved, err = unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS); err != nil {
		return nil, errors.New("the input isn't a terminal, which gives the keys")
	}
	raw := *s.saved
	// As termios(3) has it for single keys, but output is still processed and ^C is still a signal.
	raw.Lflag &^= unix.ECHO | unix.ICANON
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, &raw); err != nil {
		return nil, fmt.Errorf("set up terminal: %w", err)
	}
	_, err = io.WriteString(out, enterScreen)
	return s, err
}

// close gives the terminal back as it was.
func (s *screen) close() error {
	_, err := io.WriteString(s.out, leaveScreen)
	return errors.Join(err, unix.IoctlSetTermios(int(s.in.Fd()), unix.TCSETS, s.saved))
}

// size is the terminal's; 80 × 24 if it doesn't say.
func (s *screen) size() (width, height int) {
	w, err := unix.IoctlGetWinsize(s.fd, unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return 80, 24
	}
	return int(w.Col), int(w.Row)
}

// show replaces what is on the screen, without flicker.
func (s *screen) show(lines []string) error {
	text := homeClear
	for i, l := range lines {
		if i > 0 {
			text += "\n"
		}
		text += l + clearRight
	}
	_, err := io.WriteString(s.out, text+clearBelow)
	return err
}

// keyNames are the keys that send more than their character.
var keyNames = map[string]string{
	"\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down", "\x1b[5~": "pgup", "\x1b[6~": "pgdown",
	"\x1b[H": "home", "\x1b[F": "end", "\x1bOH": "home", "\x1bOF": "end", "\x1b[1~": "home", "\x1b[4~": "end", "\x1b": "esc",
}

// keys sends each key, until the input ends; then it closes the channel. The goroutine that waits for a key
// ends with the program.
func (s *screen) keys() <-chan string {
	ch := make(chan string)
	go func() {
		defer close(ch)
		b := make([]byte, 64)
		for {
			n, err := s.in.Read(b)
			for _, k := range splitKeys(string(b[:n])) {
				ch <- k
			}
			if err != nil {
				return
			}
		}
	}()
	return ch
}

// splitKeys returns the keys in what was read at once: a sequence isn't torn apart by the terminal.
func splitKeys(text string) (keys []string) {
	for text != "" {
		n := 1
		if text[0] == 0x1b {
			for n = min(len(text), 4); n > 1 && keyNames[text[:n]] == ""; n-- {
			}
		}
		key := text[:n]
		if name := keyNames[key]; name != "" {
			key = name
		}
		keys, text = append(keys, key), text[n:]
	}
	return keys
}
