package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"

	"turnlog.dev/gateway/engine/enginetest"
	"turnlog.dev/gateway/engine/wire"
	"turnlog.dev/schema/rawjson"
)

// tags prints the structural tag of every forced call, with the vocabulary that
// it is for, as grammars.py reads them.
func tags(out io.Writer) error {
	calls, err := enginetest.ForcedCalls()
	if err != nil {
		return err
	}
	for _, c := range calls {
		o := wire.NewObject(nil)
		o.Text("name", c.Name)
		o.Raw("tag", []byte(wire.StructuralTag(&c.Grammar, true)))
		o.Raw("stops", wire.AppendIDs(nil, c.Stops))
		o.Int("end", int64(c.End))
		tokens := []byte{'['}
		for id := range uint32(c.Model.Tokenizer.VocabSize()) {
			if id > 0 {
				tokens = append(tokens, ',')
			}
			spelled, _ := c.Model.Tokenizer.AppendBytes(nil, id)
			tokens = rawjson.AppendText(tokens, base64.StdEncoding.EncodeToString(spelled))
		}
		o.Raw("vocabulary", append(tokens, ']'))
		line := bytes.ReplaceAll(o.End(), []byte("\n"), []byte(" ")) // the schemas as they came have lines
		if _, err := out.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// read says of every answer that grammars.py sampled whether it is the calls that
// were asked for, and counts.
func read(in io.Reader, out io.Writer) error {
	calls, err := enginetest.ForcedCalls()
	if err != nil {
		return err
	}
	asked := map[string]enginetest.ForcedCall{}
	for _, c := range calls {
		asked[c.Name] = c
	}
	seen, passed, failed := map[string]bool{}, 0, 0
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		name, _ := rawjson.Get(lines.Bytes(), "name")
		raw, _ := rawjson.Get(lines.Bytes(), "ids")
		c, ok := asked[rawjson.Text(name)]
		ids, err := wire.IDs(nil, raw)
		if err != nil || !ok {
			return fmt.Errorf("not a sample: %.80s", lines.Bytes())
		}
		if err := c.Read(ids); err != nil {
			failed++
			fmt.Fprintf(out, "%s: %v: %s\n", c.Name, err, c.Model.Tokenizer.Decode(ids))
			continue
		}
		passed++
		seen[c.Name] = true
	}
	fmt.Fprintf(out, "answers under xgrammar's masks: %d passed, %d failed, 0 skipped\n", passed, failed)
	switch {
	case failed > 0:
		return fmt.Errorf("%d answers are not the calls that were asked for", failed)
	case len(seen) < len(calls):
		return fmt.Errorf("of %d forced calls only %d came to an answer", len(calls), len(seen))
	}
	return lines.Err()
}
