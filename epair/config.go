package epair

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/epair-net/epair/internal/cpus"
)

// Version is what the version key of a configuration must say.
const Version = "epair/v1"

// ErrConfig is what every error about the content of a configuration is.
var ErrConfig = errors.New("invalid configuration")

// Config is what a configuration file says. Load and Parse check it.
type Config struct {
	Version string       `yaml:"version" json:"version"`
	Pool    PoolConfig   `yaml:"pool" json:"pool"`
	RSS     RSSConfig    `yaml:"rss" json:"rss"`
	Poller  PollerConfig `yaml:"poller" json:"poller"`
	Pairs   []PairConfig `yaml:"pairs" json:"pairs"`
}

// PoolConfig is the pool of workers.
type PoolConfig struct {
	// CPUs is one CPU per worker ("0-3"); empty: all this process may use. Repeats give
	// more workers than CPUs ("0,0,1,1"), which is for tests.
	CPUs     string `yaml:"cpus,list" json:"cpus,omitempty"`
	Policy   string `yaml:"policy" json:"policy,omitempty"`     // other (default), batch, fifo or rr
	Priority int    `yaml:"priority" json:"priority,omitempty"` // 1–99 for fifo and rr
}

// RSSConfig is RSS as the user wrote it. Package epair doesn't know what it means.
type RSSConfig struct {
	Func      string            `yaml:"func" json:"func,omitempty"`
	Key       string            `yaml:"key" json:"key,omitempty"`
	Symmetric bool              `yaml:"symmetric" json:"symmetric,omitempty"`
	Fields    map[string]string `yaml:"fields" json:"fields,omitempty"`
	Table     string            `yaml:"table,list" json:"table,omitempty"`
	Inner     bool              `yaml:"inner" json:"inner,omitempty"`
	Rebalance string            `yaml:"rebalance" json:"rebalance,omitempty"` // off (default) or auto: buckets move by measured load
}

// PollerConfig is how a poller shares its CPU; 0 is the default of each.
type PollerConfig struct {
	Spin  time.Duration `yaml:"spin" json:"spin,omitempty"`   // without a frame: keep the CPU this long
	Yield time.Duration `yaml:"yield" json:"yield,omitempty"` // with frames: offer the CPU to others this often
	Idle  time.Duration `yaml:"idle" json:"idle,omitempty"`   // without a frame: sleep after this long
}

// PairConfig is one pair.
type PairConfig struct {
	Name     string        `yaml:"name" json:"name"`
	A        EndConfig     `yaml:"a" json:"a"`
	B        EndConfig     `yaml:"b" json:"b"`
	Datapath string        `yaml:"datapath" json:"datapath,omitempty"` // auto (default), direct, tc, xdp or user
	Mode     string        `yaml:"mode" json:"mode,omitempty"`         // pool (default), inline or poller
	Port     string        `yaml:"port" json:"port,omitempty"`         // packet (default) or xdp
	MTU      int           `yaml:"mtu" json:"mtu,omitempty"`           // 0: that of a dev end, else 1500
	Ring     int           `yaml:"ring" json:"ring,omitempty"`         // slots of a packet port's receive ring; 0: the port's default
	Poller   *PollerConfig `yaml:"poller" json:"poller,omitempty"`     // instead of the file's
	Persist  bool          `yaml:"persist" json:"persist,omitempty"`   // a kernel datapath goes on without the process
}

// Kinds of ends.
const (
	Veth = "veth" // created, its inner side in the end's namespace
	TAP  = "tap"  // created in the end's namespace
	Dev  = "dev"  // exists already
)

// EndConfig is one end of a pair.
type EndConfig struct {
	Kind      string   `yaml:"kind" json:"kind"`
	Name      string   `yaml:"name" json:"name"`
	Netns     string   `yaml:"netns" json:"netns,omitempty"` // name, pid:N, path or "host"; empty: host, for a dev only
	MAC       string   `yaml:"mac" json:"mac,omitempty"`     // empty: derived from host, namespace and name
	Addresses []string `yaml:"addresses" json:"addresses,omitempty"`
}

// String returns the end as ParseEnd reads it.
func (e EndConfig) String() string {
	if e.Netns == "" {
		return e.Kind + ":" + e.Name
	}
	return e.Kind + ":" + e.Name + "@" + e.Netns
}

// WithDefaults returns c with the settings filled in that don't depend on the machine.
func (c PairConfig) WithDefaults() PairConfig {
	c.Datapath, c.Mode, c.Port = cmp.Or(c.Datapath, "auto"), cmp.Or(c.Mode, "pool"), cmp.Or(c.Port, "packet")
	c.A.Netns, c.B.Netns = c.A.netns(), c.B.netns()
	return c
}

// Load reads and checks a configuration file. allowed is the CPUs that the pool may use.
func Load(path string, allowed []int) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	c, err := Parse(data, allowed)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return c, nil
}

// maxFile is the longest configuration: room for 100,000 pairs.
const maxFile = 64 << 20

// readFile reads a file that may be anything, as /dev/zero, but not without end.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is longer than %d MiB", path, maxFile>>20)
	}
	return data, err
}

// Parse reads and checks a configuration. An error is one line, which names the
// line and the key; it is an ErrConfig.
func Parse(data []byte, allowed []int) (*Config, error) {
	c := &Config{}
	lines, err := decode(data, c)
	if err != nil {
		return nil, err
	}
	if err := c.Check(allowed); err != nil {
		return nil, lines.locate(err)
	}
	for i := range c.Pairs {
		c.Pairs[i] = c.Pairs[i].WithDefaults()
	}
	return c, nil
}

// Warnings says what the user should know of a configuration that is right.
func (c *Config) Warnings() []string {
	set, err := cpus.Parse(c.Pool.CPUs)
	if err != nil {
		return nil // Check has refused it
	}
	if twice := cpus.Repeats(set); len(twice) > 0 {
		return []string{fmt.Sprintf("pool.cpus: several workers share cpu %s: good for tests, not for speed", cpus.Format(twice))}
	}
	return nil
}
