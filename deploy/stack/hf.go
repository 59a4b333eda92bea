//go:build hf

package stack

import "turnlog.dev/tokenizer/hf"

func init() { otherTokenizers = hf.Open }
