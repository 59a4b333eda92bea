//go:build !fault

package main

// faults returns nil: only a binary built with -tags fault dies at points that
// crash tests name.
func faults() func(string) { return nil }
