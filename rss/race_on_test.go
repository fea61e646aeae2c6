//go:build race

package rss

const raceEnabled = true // the detector allocates, and slows loops down
