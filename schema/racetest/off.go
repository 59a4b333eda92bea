//go:build !race

// Package racetest tells tests whether the race detector watches them. It
// allocates, and makes sync.Pool forget at random: memory is not counted then.
package racetest

// On says that the race detector watches.
const On = false
