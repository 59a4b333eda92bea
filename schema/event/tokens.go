package event

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// ErrTrainsContext is the error of Tokens for a mask that would train an id that
// was not sampled. It wraps ErrMalformed.
var ErrTrainsContext = fmt.Errorf("%w: the mask would train context", ErrMalformed)

// Tokens is what a TurnSpans says of each of its ids, whichever form it is
// written in.
type Tokens struct {
	// TurnSpans is in the form of varints and runs.
	*TurnSpans
	// Len is the number of ids. Those from Start to End, half open, were sampled;
	// the others are context: masked, with logprob 0 and no version.
	Len, Start, End int
}

// Tokens checks that the arrays of a turn belong together. It does not change
// t, and shares its memory. The error wraps ErrMalformed; what is returned then
// is t and no more.
func (t *TurnSpans) Tokens() (Tokens, error) {
	k := Tokens{TurnSpans: t, Len: t.Count()}
	k.Start, k.End = t.sampled()
	if len(t.GetIds())+len(t.GetMask())+len(t.GetLogprobs())+len(t.GetVersions()) > 0 {
		if len(t.GetIdVarints())+len(t.GetMaskRuns())+len(t.GetSampledLogprobs())+len(t.GetVersionRuns()) > 0 {
			return k, fmt.Errorf("%w: ids, a mask, logprobs or versions in two forms", ErrMalformed)
		}
		if err := k.inRuns(); err != nil {
			return k, err
		}
		return k, nil
	}
	if err := checkVarints(t.GetIdVarints(), k.Len); err != nil {
		return k, err
	}
	sampled, masked, versions := uint64(k.End-k.Start), uint64(0), uint64(0)
	for _, c := range t.GetMaskRuns() {
		masked += uint64(c)
	}
	for _, r := range t.GetVersionRuns() {
		versions += uint64(r.GetCount())
	}
	switch lp := len(t.GetSampledLogprobs()); {
	case masked != sampled:
		return k, fmt.Errorf("%w: %d sampled ids with a mask of %d", ErrMalformed, sampled, masked)
	case lp != 0 && uint64(lp) != 4*sampled:
		return k, fmt.Errorf("%w: %d sampled ids with %d bytes of logprobs", ErrMalformed, sampled, lp)
	case len(t.GetVersionRuns()) > 0 && versions != sampled:
		return k, fmt.Errorf("%w: %d sampled ids with %d versions", ErrMalformed, sampled, versions)
	}
	return k, nil
}

// Count is the number of a turn's ids: its spans tile them.
func (t *TurnSpans) Count() int {
	n := 0
	for _, s := range t.GetSpans() {
		n += int(s.GetCount())
	}
	return n
}

// sampled returns which ids were sampled: the last run of them, since a turn
// ends with its completion. Where there are none, it is the end.
func (t *TurnSpans) sampled() (start, end int) {
	at := 0
	for _, s := range t.GetSpans() {
		n := int(s.GetCount())
		if s.GetProvenance() == Provenance_PROVENANCE_SAMPLED {
			if end != at || n == 0 {
				start = at
			}
			end = at + n
		}
		at += n
	}
	if start == end {
		return at, at
	}
	return start, end
}

// inRuns turns the older form into the one of runs, in a copy.
func (k *Tokens) inRuns() error {
	t, n := k.TurnSpans, k.Len
	mask, lp, versions := t.GetMask(), t.GetLogprobs(), t.GetVersions()
	switch {
	case len(t.GetIds()) != 4*n:
		return fmt.Errorf("%w: %d bytes of ids in spans of %d", ErrMalformed, len(t.GetIds()), n)
	case len(mask) != n:
		return fmt.Errorf("%w: %d ids with a mask of %d", ErrMalformed, n, len(mask))
	case len(lp) != 0 && len(lp) != 4*n:
		return fmt.Errorf("%w: %d ids with %d bytes of logprobs", ErrMalformed, n, len(lp))
	case len(versions) != 0 && len(versions) != 4*n:
		return fmt.Errorf("%w: %d ids with %d bytes of versions", ErrMalformed, n, len(versions))
	case slices.ContainsFunc(mask, func(m byte) bool { return m > 1 }):
		return fmt.Errorf("%w: a mask that is neither 0 nor 1", ErrMalformed)
	case !only(mask, 1, 0, k.Start, k.End):
		return ErrTrainsContext
	case !only(lp, 4, 0, k.Start, k.End):
		return fmt.Errorf("%w: a logprob where nothing was sampled", ErrMalformed)
	case !only(versions, 4, 0xff, k.Start, k.End):
		return fmt.Errorf("%w: a weight version where nothing was sampled", ErrMalformed)
	}
	runs := new(TurnSpans)
	t.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		runs.ProtoReflect().Set(f, v)
		return true
	})
	runs.Ids, runs.Mask, runs.Logprobs, runs.Versions = nil, nil, nil, nil
	runs.IdVarints = Varints(t.GetIds())
	runs.MaskRuns = MaskRuns(mask[k.Start:k.End])
	if len(lp) > 0 {
		runs.SampledLogprobs = lp[4*k.Start : 4*k.End]
	}
	if len(versions) > 0 {
		runs.VersionRuns = VersionRuns(Ints(nil, versions[4*k.Start:4*k.End]))
	}
	k.TurnSpans = runs
	return nil
}

// only reports whether an array has a byte everywhere outside of the elements
// from start to end.
func only(array []byte, width int, b byte, start, end int) bool {
	if len(array) == 0 {
		return true
	}
	other := func(c byte) bool { return c != b }
	return !slices.ContainsFunc(array[:width*start], other) && !slices.ContainsFunc(array[width*end:], other)
}

// Varints returns ids in the log's form as TurnSpans.id_varints.
func Varints(ids []byte) []byte {
	ids = ids[:len(ids)&^3]
	size := len(ids) / 4
	for rest := ids; len(rest) >= 4; rest = rest[4:] {
		for id := binary.LittleEndian.Uint32(rest) >> 7; id > 0; id >>= 7 {
			size++
		}
	}
	out := make([]byte, size)
	at := 0
	for ; len(ids) >= 4; ids = ids[4:] {
		id := binary.LittleEndian.Uint32(ids)
		for ; id >= 0x80; id >>= 7 {
			out[at] = byte(id) | 0x80
			at++
		}
		out[at] = byte(id)
		at++
	}
	return out
}

// checkVarints reports what is not n varints of 32 bits each. The error wraps
// ErrMalformed.
func checkVarints(b []byte, n int) error {
	found, length := 0, 0
	for _, c := range b {
		if length++; length > 5 || length == 5 && c > 0x0f {
			return fmt.Errorf("%w: id %d is above 32 bits", ErrMalformed, found)
		}
		if c < 0x80 {
			found, length = found+1, 0
		}
	}
	if length > 0 || found != n {
		return fmt.Errorf("%w: %d ids in spans of %d", ErrMalformed, found, n)
	}
	return nil
}

// appendVarints appends n ids that checkVarints found in b.
func appendVarints[T int32 | uint32](dst []T, b []byte, n int) []T {
	at := len(dst)
	dst = slices.Grow(dst, n)[:at+n]
	for i := at; i < at+n; i++ {
		id, shift := uint32(b[0]), 7
		for c := b[0]; c >= 0x80; shift += 7 {
			b = b[1:]
			c = b[0]
			id = id&(1<<shift-1) | uint32(c)<<shift
		}
		dst[i], b = T(id), b[1:]
	}
	return dst
}

// MaskRuns returns a mask, a byte each, as TurnSpans.mask_runs.
func MaskRuns(mask []byte) []uint32 {
	var runs []uint32
	for want := byte(0); len(mask) > 0; want = 1 - want {
		n := bytes.IndexByte(mask, 1-want)
		if n < 0 {
			n = len(mask)
		}
		runs = append(runs, uint32(n))
		mask = mask[n:]
	}
	return runs
}

// VersionRuns returns versions, one for each sampled id, as
// TurnSpans.version_runs.
func VersionRuns(versions []int32) []*VersionRun {
	if !slices.ContainsFunc(versions, func(v int32) bool { return v != NoVersion }) {
		return nil
	}
	var runs []*VersionRun
	for i, v := range versions {
		if i == 0 || v != versions[i-1] {
			runs = append(runs, &VersionRun{Version: v})
		}
		runs[len(runs)-1].Count++
	}
	return runs
}

// NoVersion stands for a weight version that is unknown, and for that of an id
// that was not sampled.
const NoVersion int32 = -1

// HasLogprobs reports whether every sampled id has one.
func (k Tokens) HasLogprobs() bool { return k.Start == k.End || len(k.GetSampledLogprobs()) > 0 }

// Trainable is the number of ids that may be trained.
func (k Tokens) Trainable() int { return TrainableBefore(k.GetMaskRuns(), k.End-k.Start) }

// TrainableBefore counts the trained ones of the first n ids of a mask.
func TrainableBefore(maskRuns []uint32, n int) int {
	count := 0
	for i, run := range maskRuns {
		run := min(int(run), n)
		if i%2 == 1 {
			count += run
		}
		n -= run
	}
	return count
}

// AppendIDs appends the ids.
func (k Tokens) AppendIDs(dst []uint32) []uint32 { return appendVarints(dst, k.GetIdVarints(), k.Len) }

// AppendInt32IDs appends the ids; those above int32 become negative.
func (k Tokens) AppendInt32IDs(dst []int32) []int32 {
	return appendVarints(dst, k.GetIdVarints(), k.Len)
}

// AppendMask appends 1 for each id that may be trained, and 0 for the others.
func (k Tokens) AppendMask(dst []int8) []int8 {
	dst, own := expand[int8](dst, k, 0)
	for i, run := range k.GetMaskRuns() {
		if i%2 == 1 {
			fill(own[:run], 1)
		}
		own = own[run:]
	}
	return dst
}

// AppendLogprobs appends one for each id: 0 where nothing was sampled, or where
// the engine gave none.
func (k Tokens) AppendLogprobs(dst []float32) []float32 {
	dst, own := expand[float32](dst, k, 0)
	put(own, k.GetSampledLogprobs())
	return dst
}

// AppendVersions appends one for each id, or NoVersion.
func (k Tokens) AppendVersions(dst []int32) []int32 {
	dst, own := expand(dst, k, NoVersion)
	for _, r := range k.GetVersionRuns() {
		fill(own[:r.GetCount()], r.GetVersion())
		own = own[r.GetCount():]
	}
	return dst
}

// expand appends the value of context for every id, and returns the part of the
// sampled ones as well.
func expand[T int8 | element](dst []T, k Tokens, context T) (all, sampled []T) {
	at, n := len(dst), k.Len
	dst = slices.Grow(dst, n)[:at+n]
	fill(dst[at:], context)
	return dst, dst[at+k.Start : at+k.End]
}

func fill[T any](dst []T, v T) {
	for i := range dst {
		dst[i] = v
	}
}
