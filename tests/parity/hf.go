//go:build hf

package main

import "turnlog.dev/tokenizer/hf"

func init() { openRust = hf.Open }
