package ethtool

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// From linux/ethtool.h.
const (
	ssFeatures = 4  // ETH_SS_FEATURES
	stringLen  = 32 // ETH_GSTRING_LEN
)

// maxStrings bounds what the kernel may say it has: it has 64 features.
const maxStrings = 1024

var native = binary.NativeEndian

// socket is what the ioctls of one interface go through.
type socket struct {
	fd   int
	name [unix.IFNAMSIZ]byte
}

func open(ifname string) (*socket, error) {
	if ifname == "" || len(ifname) >= unix.IFNAMSIZ {
		return nil, fmt.Errorf("interface name of %d bytes: %w", len(ifname), unix.EINVAL)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	s := &socket{fd: fd}
	copy(s.name[:], ifname)
	return s, nil
}

func (s *socket) close() { unix.Close(s.fd) }

// command makes a structure of size bytes that starts with these words.
func command(size int, words ...uint32) []byte {
	b := make([]byte, size)
	for i, w := range words {
		native.PutUint32(b[4*i:], w)
	}
	return b
}

// strings returns the names of the features, by bit number.
func (s *socket) strings() ([]string, error) {
	info := command(20, unix.ETHTOOL_GSSET_INFO) // cmd, reserved, u64 mask, u32 data[1]
	native.PutUint64(info[8:], 1<<ssFeatures)
	if err := s.do(info); err != nil {
		return nil, err
	}
	n := int(native.Uint32(info[16:]))
	if n > maxStrings {
		return nil, fmt.Errorf("%d features: %w", n, unix.EOVERFLOW)
	}
	buf := command(12+n*stringLen, unix.ETHTOOL_GSTRINGS, ssFeatures, uint32(n))
	if err := s.do(buf); err != nil {
		return nil, err
	}
	names := make([]string, n)
	for i := range names {
		names[i] = unix.ByteSliceToString(buf[12+i*stringLen:][:stringLen])
	}
	return names, nil
}

// block is struct ethtool_get_features_block: 32 features, one bit each.
type block struct{ available, requested, active, neverChanged uint32 }

func (s *socket) getFeatures(blocks []block) error {
	buf := command(8+16*len(blocks), unix.ETHTOOL_GFEATURES, uint32(len(blocks)))
	if err := s.do(buf); err != nil {
		return err
	}
	for i := range blocks {
		b := buf[8+16*i:]
		blocks[i] = block{native.Uint32(b), native.Uint32(b[4:]), native.Uint32(b[8:]), native.Uint32(b[12:])}
	}
	return nil
}

// setBlock is struct ethtool_set_features_block.
type setBlock struct{ valid, requested uint32 }

func (s *socket) setFeatures(blocks []setBlock) error {
	buf := command(8+8*len(blocks), unix.ETHTOOL_SFEATURES, uint32(len(blocks)))
	for i, b := range blocks {
		native.PutUint32(buf[8+8*i:], b.valid)
		native.PutUint32(buf[12+8*i:], b.requested)
	}
	return s.do(buf)
}
