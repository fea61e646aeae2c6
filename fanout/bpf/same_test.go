package bpf

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/epair-net/epair/rss"
	"github.com/epair-net/epair/rss/rsstest"
)

// The programs must give every frame the hash, bucket and worker that rss gives it: over a
// million frames, whole and damaged, in every configuration, which changes under loaded programs.
func TestSameAsRSS(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	total := 0
	for i, size := range []int{128, 4, 4096, 1024} {
		table := randomTable(t, r, size)
		k := mustRSS(t, mustHasher(t, rss.Config{}), table)
		progs := mustCheck(t, k)
		steer, err := k.NewPacketSteering(table)
		if err != nil {
			t.Fatal(err)
		}
		defer steer.Close()
		s := &same{
			t: t, gen: rsstest.Frames(int64(i)),
			xdp: newXDPRunner(progs.CheckXdp), cut: newXDPRunner(progs.CheckCut),
			tc: &tcRunner{prog: progs.CheckTc}, packet: &socketRunner{progs.CheckPacket, steer.prog},
		}
		for _, cfg := range configs(r) {
			s.table, s.hasher = randomTable(t, r, size), mustHasher(t, cfg)
			if err := errors.Join(k.SetHasher(s.hasher), k.SetTable(s.table), steer.SetIndex(s.table, nil)); err != nil {
				t.Fatal(err)
			}
			total += s.frames(framesPerConfig)
		}
	}
	t.Logf("%d frames", total)
	if total < 1_000_000 && !raceEnabled {
		t.Errorf("only %d frames", total)
	}
}

// same is one configuration's test.
type same struct {
	t            *testing.T
	gen          *rsstest.Gen
	hasher       *rss.Hasher
	table        *rss.Table
	xdp, cut, tc runner
	packet       runner
}

// frames checks n frames: all by XDP, some by the other hooks too.
func (s *same) frames(n int) int {
	for i := range n {
		f := s.gen.Next()
		if len(f) < etherLen {
			s.check(s.cut, f)
			continue
		}
		s.check(s.xdp, f)
		switch {
		case i%8 == 0:
			s.check(s.cut, f[:i%len(f)])
		case i%8 == 1 && skbTakes(f):
			s.check(s.tc, f)
		case i%8 == 2 && skbTakes(f):
			s.packetCheck(f)
		}
	}
	return n
}

func (s *same) check(by runner, f []byte) {
	got, err := by.run(f)
	if err == nil {
		err = check(s.hasher, s.table, f, got)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// packetCheck has no bucket to compare.
func (s *same) packetCheck(f []byte) {
	got, err := s.packet.run(f)
	if err != nil {
		s.t.Fatal(err)
	}
	got.Bucket = uint32(s.table.Bucket(got.Hash))
	if err := check(s.hasher, s.table, f, got); err != nil {
		s.t.Fatal(err)
	}
}
