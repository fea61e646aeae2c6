package skb

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/epair-net/epair/fanout/kern"
)

// mask is the set of CPUs to which RPS spreads what a device receives (Documentation/networking/scaling.rst).
type mask struct {
	name  string
	sets  []file   // rps_cpus of each receive queue
	flows []file   // rps_flow_cnt: RFS, which overrides RPS
	old   [][]byte // of sets
}

func openMask(s *sysfs, d kern.Device) (*mask, error) {
	m := &mask{name: d.Name}
	if err := m.open(s); err != nil {
		return nil, errors.Join(fmt.Errorf("open RPS of %s: %w", d.Name, err), m.close())
	}
	return m, nil
}

func (m *mask) open(s *sysfs) error {
	for q := 0; ; q++ {
		dir := fmt.Sprintf("class/net/%s/queues/rx-%d/", m.name, q)
		set, err := s.open(dir+"rps_cpus", unix.O_RDWR)
		if gone(err) && q > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		m.sets = append(m.sets, set)
		old, err := set.read()
		if err != nil {
			return err
		}
		m.old = append(m.old, old)
		flow, err := s.open(dir+"rps_flow_cnt", unix.O_RDONLY)
		if err != nil {
			return err
		}
		m.flows = append(m.flows, flow)
	}
}

// checkFlows refuses RFS.
func (m *mask) checkFlows() error {
	for _, f := range m.flows {
		n, err := f.number()
		if err != nil {
			return err
		}
		if n != 0 {
			return fmt.Errorf("%w: RFS is on at %s and would choose the CPU (echo 0 into its rps_flow_cnt)", kern.ErrRefused, m.name)
		}
	}
	return nil
}

// set changes the mask. It concerns the frames that arrive from now on; a device that is gone is fine.
func (m *mask) set(text []byte) error {
	var errs []error
	for _, f := range m.sets {
		if err := f.write(text); err != nil && !gone(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// restore puts back what was there first.
func (m *mask) restore() error {
	var errs []error
	for i, f := range m.sets {
		if err := f.write(m.old[i]); err != nil && !gone(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (m *mask) close() error {
	var errs []error
	for _, f := range append(m.sets, m.flows...) {
		errs = append(errs, f.close())
	}
	m.sets, m.flows = nil, nil
	return errors.Join(errs...)
}

// formatMask writes a set of CPUs as the kernel reads them: hexadecimal, 32 bits between commas.
func formatMask(cpus []int) []byte {
	words := []uint32{0}
	for _, c := range cpus {
		for len(words) <= c/32 {
			words = append(words, 0)
		}
		words[c/32] |= 1 << (c % 32)
	}
	var b strings.Builder
	for i := len(words) - 1; i >= 0; i-- {
		fmt.Fprintf(&b, "%08x", words[i])
		if i > 0 {
			b.WriteByte(',')
		}
	}
	return []byte(b.String())
}

// parseMask reads what formatMask writes; the words need not be padded.
func parseMask(text string) (cpus []int, err error) {
	words := strings.Split(text, ",")
	for i := range words {
		w, err := strconv.ParseUint(words[len(words)-1-i], 16, 32)
		if err != nil {
			return nil, fmt.Errorf("read CPU mask %q: %w", text, err)
		}
		for bit := range 32 {
			if w&(1<<bit) != 0 {
				cpus = append(cpus, i*32+bit)
			}
		}
	}
	return cpus, nil
}
