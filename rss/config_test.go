package rss

import (
	"bytes"
	"encoding/hex"
	"maps"
	"strings"
	"testing"
)

func TestZeroConfig(t *testing.T) {
	h := mustNew(t, Config{})
	want := map[string]string{"tcp4": "sdfn", "tcp6": "sdfn", "udp4": "sdfn", "udp6": "sdfn", "sctp4": "sdfn", "sctp6": "sdfn", "ip4": "sd", "ip6": "sd"}
	c := h.Config()
	if !maps.Equal(c.Fields, want) || c.Func != "toeplitz" || c.Key != microsoftKey || c.Symmetric || c.Inner {
		t.Errorf("zero Config is %+v", c)
	}
	if h.Func() != Toeplitz || hex.EncodeToString(h.Key()) != microsoftKey || h.Symmetric() || h.Inner() || h.Fields(TCP4).String() != "sdfn" || h.Fields(MAC) != 0 {
		t.Errorf("the getters disagree with %+v", c)
	}
}

func TestNewErrors(t *testing.T) {
	fields := func(kv ...string) map[string]string { return map[string]string{kv[0]: kv[1]} }
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Func: "crc32"}, `func "crc32": unknown (use toeplitz or xxhash)`},
		{Config{Key: "6d5a"}, "key: has 2 bytes (needs 40 to 52)"},
		{Config{Key: strings.Repeat("6d", 53)}, "key: has 53 bytes"},
		{Config{Key: "symetric"}, "use default, symmetric or 40 to 52 bytes in hexadecimal"},
		{Config{Key: microsoftKey[1:]}, "odd number"},
		{Config{Key: "6d5a:56da"}, `"6d5a" between colons isn't a byte`},
		{Config{Key: strings.Repeat("6d:", 40)}, `"" between colons isn't a byte`},
		{Config{Func: "xxhash", Key: "symmetric"}, "xxhash has no key"},
		{Config{Func: "xxhash", Key: microsoftKey}, `key "6d5a56da255b0ec2": xxhash has no key`},
		{Config{Fields: fields("esp4", "sd")}, `fields "esp4": no such flow type (use ip4, ip6, tcp4,`},
		{Config{Fields: fields("mac", "sd")}, `fields "mac": no such flow type`},
		{Config{Fields: fields("tcp4", "sdv")}, `fields tcp4: letter 'v' of "sdv" can't be hashed (use letters of "sdfn")`},
		{Config{Fields: fields("ip6", "sdf")}, `fields ip6: letter 'f' of "sdf" can't be hashed (use letters of "sd")`},
		{Config{Fields: fields("tcp4", "")}, "fields tcp4: nothing to hash"},
		{Config{Symmetric: true, Fields: fields("tcp4", "sfn")}, `fields tcp4: "sfn" can't be symmetric (use s with d and f with n`},
		{Config{Symmetric: true, Fields: fields("udp6", "sdn")}, `fields udp6: "sdn" can't be symmetric`},
		{Config{Symmetric: true, Fields: fields("ip4", "d")}, `fields ip4: "d" can't be symmetric`},
	} {
		h, err := New(c.cfg)
		if err == nil || h != nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "rss ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: error %v, want one with %q", c.cfg, err, c.want)
		}
	}
}

func TestKeys(t *testing.T) {
	var pairs []string
	for i := 0; i < len(microsoftKey); i += 2 {
		pairs = append(pairs, microsoftKey[i:i+2])
	}
	colons := strings.Join(pairs, ":")
	plain := mustNew(t, Config{})
	for _, key := range []string{"default", microsoftKey, strings.ToUpper(microsoftKey), colons, microsoftKey + strings.Repeat("ff", 12)} {
		h := mustNew(t, Config{Key: key})
		if !bytes.HasPrefix(h.Key(), plain.Key()) || h.Hash(tcp4()) != plain.Hash(tcp4()) {
			t.Errorf("key %s is %x", key, h.Key())
		}
	}
	h := mustNew(t, Config{Key: "symmetric"})
	if want := strings.Repeat("6d5a", 20); hex.EncodeToString(h.Key()) != want {
		t.Errorf("symmetric key is %x", h.Key())
	}
	if other := mustNew(t, Config{Key: strings.Repeat("01", 40)}); other.Hash(tcp4()) == plain.Hash(tcp4()) {
		t.Error("another key gives the same hash")
	}
	key := plain.Key()
	if key[0]++; plain.Key()[0] == key[0] {
		t.Error("Key isn't a copy")
	}
}

// The normal form of a Config is a Config with the same meaning.
func TestConfigRoundTrip(t *testing.T) {
	for _, cfg := range configs() {
		h := mustNew(t, cfg)
		again := mustNew(t, h.Config())
		if hashes(h) != hashes(again) {
			t.Errorf("%+v: its normal form %+v hashes otherwise", cfg, h.Config())
		}
	}
}
