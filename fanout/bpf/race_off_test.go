//go:build !race

package bpf

const (
	raceEnabled     = false
	framesPerConfig = 4_200 // 64 configurations, four tables: above a million
)
