//go:build race

package reference

// raceDetector: it allocates too.
const raceDetector = true
