// Command parity compares this repository's templates and tokenizers with the
// libraries that models are trained with. run.sh prepares what it reads; see
// README.md.
//
//	parity templates -dir DIR -cases FILE -truth FILE
//	parity tokens    -name NAME -tokenizer FILE -corpus FILE -ids FILE [-decoded FILE]
//	parity bench     -cases FILE -text FILE template:NAME=FILE... tokenizer:NAME=FILE...
//
// The first two print what differs and one line of counts, "name: N passed, N failed",
// and exit with 1 if anything failed.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	var passed, failed int
	var name string
	var err error
	switch os.Args[1] {
	case "templates":
		name, passed, failed, err = compareTemplates(os.Args[2:])
	case "tokens":
		name, passed, failed, err = compareTokens(os.Args[2:])
	case "bench":
		if err := bench(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "parity:", err)
			os.Exit(2)
		}
		return
	default:
		usage()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "parity:", err)
		os.Exit(2)
	}
	fmt.Printf("%s: %d passed, %d failed\n", name, passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: parity templates|tokens|bench [flags]")
	os.Exit(2)
}

// shown is how many differences are printed; the rest is only counted.
const shown = 10
