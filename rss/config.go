package rss

import "fmt"

// Func is a hash function.
type Func uint8

// The hash functions. The numbers are part of the contract with the BPF programs.
const (
	Toeplitz Func = iota
	XXHash        // XXH64 with seed 0, folded to 32 bits
)

// String returns the function's name as Config.Func has it.
func (f Func) String() string {
	if f == XXHash {
		return "xxhash"
	}
	return "toeplitz"
}

// Config is RSS as the user writes it. Its zero value is Toeplitz with
// Microsoft's key over all fields, not symmetric.
//
// The fragments of a datagram are hashed by addresses only, since only the
// first has ports. A flow that sends both fragments and whole datagrams thus has two
// hashes; where its order across both matters, select "sd" for its flow type.
type Config struct {
	// Func is "toeplitz" (default) or "xxhash".
	Func string `json:"func,omitempty" yaml:"func,omitempty"`
	// Key is for Toeplitz only: "default" (Microsoft's), "symmetric", or 40 to 52
	// bytes in hexadecimal, as ethtool prints them, colons optional.
	//
	// "symmetric" is 6d5a repeated: both directions of a flow get the same hash even from a NIC that orders
	// nothing. The two halves of that hash are always equal, so it has only 16 bits of
	// entropy: enough for a table, too little for two stages that use different bits;
	// and equal addresses cancel out: all that hosts send to themselves by protocols without ports has hash 0. Prefer Symmetric.
	Key string `json:"key,omitempty" yaml:"key,omitempty"`
	// Symmetric gives both directions of a flow the same hash, by putting the
	// smaller endpoint first. No entropy is lost. Both ends of a VXLAN, Geneve or GTP-U
	// tunnel send to the same port, so its outer headers aren't those of one flow's two
	// directions: use Inner too.
	Symmetric bool `json:"symmetric,omitempty" yaml:"symmetric,omitempty"`
	// Fields maps a flow type (tcp4 tcp6 udp4 udp6 sctp4 sctp6 ip4 ip6) to the
	// letters of the fields to hash: s source address, d destination address,
	// f source port, n destination port. Default: all the type has. Symmetric needs s with d and
	// f with n.
	Fields map[string]string `json:"fields,omitempty" yaml:"fields,omitempty"`
	// Inner hashes what is inside VXLAN, Geneve, GRE, IP-in-IP and GTP-U instead of the outer headers.
	Inner bool `json:"inner,omitempty" yaml:"inner,omitempty"`
}

// New checks cfg and prepares its tables.
func New(cfg Config) (*Hasher, error) {
	h := &Hasher{symmetric: cfg.Symmetric, inner: cfg.Inner}
	var err error
	if h.fn, err = parseFunc(cfg.Func); err != nil {
		return nil, fmt.Errorf("rss %w", err)
	}
	if h.fn == XXHash && cfg.Key != "" && cfg.Key != "default" {
		return nil, fmt.Errorf("rss key %.16q: xxhash has no key (leave it out, or use func toeplitz)", cfg.Key)
	}
	if h.key, err = parseKey(cfg.Key); err != nil {
		return nil, fmt.Errorf("rss %w", err)
	}
	if h.fields, err = parseFields(cfg.Fields); err != nil {
		return nil, fmt.Errorf("rss %w", err)
	}
	if err := checkSymmetric(cfg.Symmetric, &h.fields); err != nil {
		return nil, fmt.Errorf("rss %w", err)
	}
	h.table = newToeplitzTable(h.key)
	h.short4, h.short6 = h.shortcuts(IP4), h.shortcuts(IP6)
	return h, nil
}

func parseFunc(s string) (Func, error) {
	switch s {
	case "", "toeplitz":
		return Toeplitz, nil
	case "xxhash":
		return XXHash, nil
	}
	return 0, fmt.Errorf("func %q: unknown (use toeplitz or xxhash)", s)
}

func checkSymmetric(on bool, set *[NumFlowTypes]Fields) error {
	for t, f := range set {
		if on && !f.symmetric() {
			return fmt.Errorf("fields %s: %q can't be symmetric (use s with d and f with n, or symmetric: false)", FlowType(t), f)
		}
	}
	return nil
}

// Config returns the settings in their normal form: all defaults filled in.
func (h *Hasher) Config() Config {
	c := Config{Func: h.fn.String(), Symmetric: h.symmetric, Fields: map[string]string{}, Inner: h.inner}
	if h.fn == Toeplitz {
		c.Key = fmt.Sprintf("%x", h.key)
	}
	for t := IP4; t < NumFlowTypes; t++ {
		c.Fields[t.String()] = h.fields[t].String()
	}
	return c
}

// Func returns the hash function.
func (h *Hasher) Func() Func { return h.fn }

// Key returns a copy of the RSS key.
func (h *Hasher) Key() []byte { return append([]byte(nil), h.key...) }

// Symmetric says whether the endpoints are ordered.
func (h *Hasher) Symmetric() bool { return h.symmetric }

// Inner says whether tunnels are looked into.
func (h *Hasher) Inner() bool { return h.inner }

// Fields returns what is hashed of a flow type; 0 for Raw and MAC.
func (h *Hasher) Fields(t FlowType) Fields { return h.fields[t] }

// ToeplitzTable returns a copy of the lookup table: the hash of a key is the
// XOR of table[i][key[i]] over its bytes.
func (h *Hasher) ToeplitzTable() [MaxKeyLen][256]uint32 { return *h.table }
