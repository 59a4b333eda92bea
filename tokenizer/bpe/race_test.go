//go:build race

package bpe_test

// raceDetector: it makes sync.Pool forget at random.
const raceDetector = true
