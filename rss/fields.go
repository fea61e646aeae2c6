package rss

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// FlowType is the kind of a flow key. The numbers are part of the contract
// with the BPF programs: from IP4 on, an odd type is IPv6; from TCP4 on, it has ports.
type FlowType uint8

// The flow types, by the names that ethtool gives them.
const (
	Raw FlowType = iota // shorter than an Ethernet header
	MAC                 // not IP, or no usable IP header
	IP4
	IP6
	TCP4
	TCP6
	UDP4
	UDP6
	SCTP4
	SCTP6
	NumFlowTypes = iota
)

var flowTypeNames = [NumFlowTypes]string{"raw", "mac", "ip4", "ip6", "tcp4", "tcp6", "udp4", "udp6", "sctp4", "sctp6"}

// String returns the name as Config.Fields has it; raw and mac can't be configured.
func (t FlowType) String() string {
	if int(t) < len(flowTypeNames) {
		return flowTypeNames[t]
	}
	return fmt.Sprintf("flow type %d", uint8(t))
}

func (t FlowType) hasPorts() bool { return t >= TCP4 }
func (t FlowType) isIP6() bool    { return t >= IP4 && t&1 == 1 }

// Fields is the set of header fields that are hashed for a flow type.
type Fields uint8

// The fields, by the letters of ethtool -N rx-flow-hash.
const (
	Src   Fields = 1 << iota // s: source address
	Dst                      // d: destination address
	Sport                    // f: source port
	Dport                    // n: destination port

	addrFields = Src | Dst
	portFields = Sport | Dport
	allFields  = addrFields | portFields
)

const fieldLetters = "sdfn" // in the order of the bits

// String returns the letters in the order sdfn.
func (f Fields) String() string {
	var b strings.Builder
	for i, c := range fieldLetters {
		if f&(1<<i) != 0 {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// symmetric says whether both directions of a flow have the same set: each
// field with its counterpart. The kernel demands the same of its symmetric transforms.
func (f Fields) symmetric() bool {
	return (f&Src != 0) == (f&Dst != 0) && (f&Sport != 0) == (f&Dport != 0)
}

// defaultFields is everything a flow type has.
func defaultFields() (d [NumFlowTypes]Fields) {
	d[IP4], d[IP6] = addrFields, addrFields
	for t := TCP4; t < NumFlowTypes; t++ {
		d[t] = allFields
	}
	return d
}

// parseFields applies the configured sets to the default ones.
func parseFields(conf map[string]string) ([NumFlowTypes]Fields, error) {
	set := defaultFields()
	for _, name := range slices.Sorted(maps.Keys(conf)) { // sorted: of two faults always the same is reported
		t, err := parseFlowType(name)
		if err != nil {
			return set, err
		}
		if set[t], err = parseLetters(t, conf[name]); err != nil {
			return set, err
		}
	}
	return set, nil
}

func parseFlowType(name string) (FlowType, error) {
	if i := slices.Index(flowTypeNames[:], name); i >= int(IP4) {
		return FlowType(i), nil
	}
	return 0, fmt.Errorf("fields %q: no such flow type (use %s)", name, strings.Join(flowTypeNames[IP4:], ", "))
}

func parseLetters(t FlowType, letters string) (Fields, error) {
	allowed := fieldLetters
	if !t.hasPorts() {
		allowed = "sd"
	}
	var f Fields
	for _, c := range letters {
		i := strings.IndexRune(allowed, c)
		if i < 0 {
			return 0, fmt.Errorf("fields %s: letter %q of %q can't be hashed (use letters of %q)", t, c, letters, allowed)
		}
		f |= 1 << i
	}
	if f == 0 {
		return 0, fmt.Errorf("fields %s: nothing to hash (use letters of %q)", t, allowed)
	}
	return f, nil
}
