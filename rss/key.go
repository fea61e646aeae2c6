package rss

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Bounds of an RSS key. A flow key of MaxKeyLen bytes uses the first 40 bytes;
// ethtool prints up to 52 for some NICs, whose rest is accepted and has no effect.
const (
	minRSSKey = MaxKeyLen + 4
	maxRSSKey = 52
)

// microsoftKey is the key of Microsoft's RSS verification suite ("Verifying the
// RSS Hash Calculation"), which many NICs and DPDK use as their default.
const microsoftKey = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"

// parseKey returns the RSS key that s names: "" or "default", "symmetric",
// or hexadecimal digits, bytes separated by colons or not.
func parseKey(s string) ([]byte, error) {
	switch s {
	case "", "default":
		s = microsoftKey
	case "symmetric":
		s = strings.Repeat("6d5a", minRSSKey/2)
	}
	digits := s
	if strings.Contains(s, ":") {
		for _, b := range strings.Split(s, ":") {
			if len(b) != 2 {
				return nil, fmt.Errorf("key: %q between colons isn't a byte (write two hexadecimal digits)", b)
			}
		}
		digits = strings.ReplaceAll(s, ":", "")
	}
	key, err := hex.DecodeString(digits)
	if errors.Is(err, hex.ErrLength) {
		return nil, fmt.Errorf("key: has an odd number of digits, %d (needs two for each of %d to %d bytes)", len(digits), minRSSKey, maxRSSKey)
	}
	if err != nil {
		return nil, fmt.Errorf("key: %q isn't a key (use default, symmetric or %d to %d bytes in hexadecimal)", s, minRSSKey, maxRSSKey)
	}
	if len(key) < minRSSKey || len(key) > maxRSSKey {
		return nil, fmt.Errorf("key: has %d bytes (needs %d to %d)", len(key), minRSSKey, maxRSSKey)
	}
	return key, nil
}
