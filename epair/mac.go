package epair

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"strings"
)

// stableMAC derives an end's address from host, namespace and interface name, so that it is the same
// whenever the pair is created again, and different elsewhere. It is locally
// administered and unicast, and its last byte names the end, as FreeBSD's epair(4) has it; the
// other 38 bits are a hash.
func stableMAC(host, identity string, side byte) net.HardwareAddr {
	sum := sha256.Sum256([]byte(host + "\x00" + identity))
	m := net.HardwareAddr(sum[:6])
	m[0] = m[0]&^1 | 2
	m[5] = side - 'a' + 0x0a
	return m
}

// setMAC chooses the end's address: the user's, or the derived one.
func (e *End) setMAC() (err error) {
	if e.cfg.MAC != "" {
		e.mac, err = net.ParseMAC(e.cfg.MAC)
		return err
	}
	e.mac = stableMAC(e.env.host, e.cfg.identity(), e.side)
	return nil
}

// hostID is what the same machine has after each boot, and no other has (machine-id(5)).
func hostID() (string, error) {
	b, err := os.ReadFile("/etc/machine-id")
	if id := strings.TrimSpace(string(b)); err == nil && id != "" {
		return id, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("identify host: %w", err)
	}
	return name, nil
}
