//go:build race

package bpf

const (
	raceEnabled     = true
	framesPerConfig = 500
)
