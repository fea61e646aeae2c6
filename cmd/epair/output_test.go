package main

import (
	"errors"
	"strings"
	"testing"
)

// full is an output that takes nothing, as /dev/full.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

// An answer that got lost is a failure, whoever printed it.
func TestLostAnswer(t *testing.T) {
	for _, args := range []string{"version", "--help", "run --help", "rss show --workers 2", "rss explain --workers 2 icmp 10.0.0.1 10.0.0.2",
		"rss craft --workers 2 --worker 1", "bench --help", "completion bash"} {
		var said strings.Builder
		if status := execute(t.Context(), strings.Fields(args), full{}, &said); status != exitFailed || said.String() != "epair: "+errFull.Error()+"\n" {
			t.Errorf("%s: exit status %d, %q", args, status, said.String())
		}
	}
}

// What flags want is said in words, without what Go has to say about it.
func TestFlagValues(t *testing.T) {
	for args, want := range map[string]string{
		"rss craft --worker x":                          `--worker: want a whole number, not "x"`,
		"rss craft --worker 99999999999999999999":       `--worker: want a whole number, not "99999999999999999999"`,
		"stat --watch=perhaps":                          `--watch: want true or false, not "perhaps"`,
		"stat --interval 5":                             `--interval: want a duration, as 500ms or 1m30s, not "5"`,
		"bench throughput --seed -1":                    `--seed: want a whole number from 0 up, not "-1"`,
		"bench pairs --n 1,x":                           `--n: want whole numbers with commas between, not "1,x"`,
		"bench pairs --n 1,0":                           `bench: --n: 0 is outside 1 to 10000`,
		"bench throughput --flows 0":                    `bench: measure: 0 flows: outside 1 to 16384`,
		"bench throughput --flows -5":                   `bench: measure: -5 flows: outside 1 to 16384`,
		"bench throughput --rounds 1000000000":          `bench: measure: 1000000000 rounds: outside 1 to 10000`,
		"bench throughput --json /not/there/f":          `bench: write /not/there/f: no such file or directory`,
		"bench throughput --html /not/there/f":          `bench: write /not/there/f: no such file or directory`,
		"rss explain --frame 0x":                        `--frame: not whole bytes in hexadecimal, as 02:00:00:00:00:01 …`,
		"rss explain --key zz icmp 10.0.0.1 10.0.0.2":   `rss key: "zz" isn't a key (use default, symmetric or 40 to 52 bytes in hexadecimal)`,
		"run --metrics 127.0.0.1:99999 --socket /x/y/z": `serve /x/y/z: open /x/y: no such file or directory`,
		"bench diff /dev/null /dev/null":                `read report /dev/null: it isn't whole, or no report (write one with 'epair bench … --json FILE')`,
	} {
		var out, said strings.Builder
		status := execute(t.Context(), strings.Fields(args), &out, &said)
		if said.String() != "epair: "+want+"\n" || out.String() != "" || status == exitDone {
			t.Errorf("%s: exit status %d\n got %q\nwant %q", args, status, said.String(), want)
		}
	}
}
