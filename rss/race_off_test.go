//go:build !race

package rss

const raceEnabled = false
