package skb

import (
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/cilium/ebpf"

	"github.com/epair-net/epair/fanout/kern"
)

// programs are the loaded ones of a pair, by name. Those that hash and fence are
// loaded when the mode first becomes pool: the verifier takes its time for them.
type programs struct {
	countTx  [2]bool // leave counts, by direction
	policy   *kern.Policy
	keep     *kern.Keep
	counters *kern.Counters
	target   *ebpf.Map // skb_target
	sw       *ebpf.Map // skb_switch; with fence
	fence    *kern.Fence
	byName   map[string]*ebpf.Program
}

func newPrograms(p *kern.Policy, k *kern.Keep) (*programs, error) {
	l := &programs{policy: p, keep: k, byName: map[string]*ebpf.Program{}}
	var err error
	if l.counters, err = k.NewCounters(); err != nil {
		return nil, err
	}
	spec, err := specOf(p)
	if err == nil {
		l.target, err = k.NewMap(spec.Maps[skbMapSkbTarget])
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load programs: %w", kern.Explain(err)), l.close())
	}
	return l, nil
}

// parsed is the objects as they were read: that takes longer than all else that a crossing needs.
type parsed struct{ spec *ebpf.CollectionSpec }

// Close implements io.Closer, for kern.Policy.Shared.
func (parsed) Close() error { return nil }

// specKey is what crossings of a policy share parsed by.
type specKey struct{}

// specOf returns a copy of the objects, to be changed.
func specOf(p *kern.Policy) (*ebpf.CollectionSpec, error) {
	c, err := p.Shared(specKey{}, func() (io.Closer, error) {
		spec, err := loadSkb()
		return parsed{spec}, err
	})
	if err != nil {
		return nil, err
	}
	return c.(parsed).spec.Copy(), nil
}

// addFence makes what programs that fence need; rps is as NewFence has it.
func (l *programs) addFence(rps []int) error {
	if l.fence != nil {
		return nil
	}
	f, err := l.keep.NewFence(l.policy.Buckets(), rps)
	if err != nil {
		return err
	}
	spec, err := specOf(l.policy)
	if err == nil {
		l.sw, err = l.keep.NewMap(spec.Maps[skbMapSkbSwitch])
	}
	if err != nil {
		return errors.Join(fmt.Errorf("load programs: %w", kern.Explain(err)), f.Close())
	}
	l.fence = f
	return nil
}

// load makes sure that programs are loaded; an empty name is none. Those that fence need addFence before.
func (l *programs) load(names ...string) error {
	spec, err := specOf(l.policy)
	if err != nil {
		return fmt.Errorf("load programs: %w", err)
	}
	need := map[string]*ebpf.ProgramSpec{}
	for _, name := range names {
		if name != "" && l.byName[name] == nil {
			need[name] = spec.Programs[name]
		}
	}
	if len(need) == 0 {
		return nil
	}
	spec.Programs = need
	if err := l.prepare(spec); err != nil {
		return err
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: l.replacements(spec)})
	if err != nil {
		return fmt.Errorf("load programs: %w", kern.Explain(err))
	}
	defer c.Close()
	for name := range need {
		l.byName[name] = c.DetachProgram(name)
	}
	return nil
}

// prepare leaves in spec what the programs in it need.
func (l *programs) prepare(spec *ebpf.CollectionSpec) error {
	if err := spec.Variables[skbVarSkbCountTx].Set([2]uint32{word(l.countTx[0]), word(l.countTx[1])}); err != nil {
		return fmt.Errorf("prepare programs: %w", err)
	}
	if l.fence != nil {
		if err := l.fence.Prepare(spec); err != nil {
			return err
		}
	}
	used := map[string]bool{".rodata": true} // of the variables
	for _, p := range spec.Programs {
		for _, ins := range p.Instructions {
			used[ins.Reference()] = true
		}
	}
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool { return !used[name] })
	return nil
}

// replacements are the pair's own maps, as far as spec has them.
func (l *programs) replacements(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	all := map[string]*ebpf.Map{skbMapSkbTarget: l.target, skbMapSkbSwitch: l.sw}
	maps.Copy(all, l.counters.Maps())
	maps.Copy(all, l.policy.RSS().Maps(l.policy.Slots()))
	if l.fence != nil {
		maps.Copy(all, l.fence.Maps())
	}
	maps.DeleteFunc(all, func(name string, _ *ebpf.Map) bool { return spec.Maps[name] == nil })
	return all
}

// setLocal says whether all frames stay on the CPU that sends them. Programs see it at once.
func (l *programs) setLocal(on bool) error {
	return l.sw.Put(uint32(0), skbSkbSwitch{Local: word(on)})
}

func word(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

// pins are the names of maps that don't depend on the mode.
func (l *programs) pins() []string {
	names := []string{skbMapSkbTarget}
	for name := range l.counters.Maps() {
		names = append(names, name)
	}
	return names
}

func (l *programs) close() error {
	errs := []error{l.counters.Close(), l.target.Close(), l.sw.Close()} // nil maps close well
	for _, p := range l.byName {
		errs = append(errs, p.Close())
	}
	if l.fence != nil {
		errs = append(errs, l.fence.Close())
	}
	return errors.Join(errs...)
}
