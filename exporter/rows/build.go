package rows

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"turnlog.dev/schema/event"
	"turnlog.dev/schema/rawjson"
)

// Result is what a session gives.
type Result struct {
	Rows []*Row
	// LeftOut counts rows, or whole branches, by why they are not there.
	LeftOut map[string]int64
}

// Rows returns the rows of a sealed session that the policy wants, in the order
// of its branches. The error wraps ErrMalformed.
func (s *Session) Rows(p Policy) (Result, error) {
	res := Result{LeftOut: make(map[string]int64)}
	if s.started == nil || s.sealed == nil {
		return res, fmt.Errorf("%w: %s is not sealed", ErrMalformed, s.id)
	}
	if s.parked {
		res.LeftOut[ByGrade] += int64(max(1, len(s.branches)))
		return res, nil
	}
	b := builder{Session: s, policy: p, parents: make(map[string]string, len(s.turns)), trained: make(map[string]bool), res: &res}
	for id, t := range s.turns {
		b.parents[id] = t.Parent
	}
	for _, branch := range s.branches {
		if reason := p.branch(branch); reason != "" {
			res.LeftOut[reason]++
			continue
		}
		if err := b.branch(branch); err != nil {
			return Result{}, err
		}
	}
	for i, r := range res.Rows {
		r.SegmentIndex, r.SegmentCount = int32(i), int32(len(res.Rows))
		r.IsLastSegment = i == len(res.Rows)-1
	}
	return res, nil
}

type builder struct {
	*Session
	policy Policy
	// parents of all turns.
	parents map[string]string
	// trained are the turns that a row before trains. The recorder says which
	// branch trains a turn; this holds even if it says so of two.
	trained map[string]bool
	res     *Result
}

func (b *builder) branch(branch *event.BranchSealed) error {
	on, err := branch.Path(b.parents)
	if err != nil {
		return fmt.Errorf("%w: session %s: %w", ErrMalformed, b.id, err)
	}
	if !slices.Contains(on.Trained, true) {
		b.res.LeftOut[Untrainable]++ // there may be thousands: none is put together
		return nil
	}
	q := newSequence()
	q.grow(b.tokens(on))
	path := make([]*turn, 0, len(on.Turns))
	segment := 0
	for i, id := range on.Turns {
		t := b.turns[id]
		if keep := int(t.Keep); keep < len(q.ids) {
			if q.trains(keep) {
				if b.emit(branch, q.clone(), path, segment) {
					clear(q.mask[:keep])
				}
				segment++
			}
			q.truncate(keep)
		}
		if err := q.add(t, on.Trained[i] && !b.trained[id]); err != nil {
			return err
		}
		path = append(path, t)
	}
	b.emit(branch, &q, path, segment)
	return nil
}

// tokens is an upper bound of the length of a branch.
func (b *builder) tokens(on event.Path) (n int) {
	for _, id := range on.Turns {
		n += b.turns[id].Len
	}
	return n
}

// emit adds the row of a sequence, which it keeps, and reports whether its
// tokens are trained by it.
func (b *builder) emit(branch *event.BranchSealed, q *sequence, path []*turn, segment int) bool {
	trimmed := q.trim()
	if trimmed.trainable() == 0 {
		b.res.LeftOut[Untrainable]++
		return false
	}
	whole := &trimmed
	if b.policy.KeepTail {
		whole = q
	}
	r := b.row(branch, whole, path, segment)
	if reason := b.policy.row(r); reason != "" {
		b.res.LeftOut[reason]++
		return false
	}
	for _, s := range whole.spans {
		if slices.Contains(whole.mask[s.start:s.end], 1) {
			b.trained[s.turn.Turn] = true
		}
	}
	b.res.Rows = append(b.res.Rows, r)
	return true
}

func (b *builder) row(branch *event.BranchSealed, q *sequence, path []*turn, segment int) *Row {
	r := &Row{
		RowID:       b.rowID(branch.Branch, segment),
		RunID:       b.run,
		SessionID:   b.id,
		BranchID:    branch.Branch,
		BranchLabel: branch.Label,
		Class:       branch.Class,

		RolloutID:    b.id,
		GroupID:      b.started.Group,
		RolloutIndex: b.started.Index,
		Attempt:      b.started.Attempt,
		Task:         b.started.Task,
		DataSource:   b.started.DataSource,
		Split:        b.started.Split,

		Length:          int32(len(q.ids)),
		PromptLength:    int32(slices.Index(q.mask, 1)),
		TrainableTokens: int32(q.trainable()),

		Status:       b.sealed.Status,
		Grade:        gradeName(branch.Grade),
		GradeReasons: nonNil(branch.GradeReasons),
		PrefixStable: q.stable(),
		MetadataJSON: string(b.started.Metadata),
	}
	r.ResponseLength = r.Length - r.PromptLength
	if r.GroupID == "" {
		r.GroupID = b.id
	}
	if n := b.started.GroupSize; n > 0 {
		r.GroupSize = &n
	}
	r.tokens(q)
	r.rewarded(b.Session, branch, q)
	r.sampling(q)
	last := q.spans[len(q.spans)-1].turn
	r.identity(q, last)
	if r.StopReason = b.sealed.Reason; r.Status == "completed" || r.StopReason == "" {
		r.StopReason = last.FinishReason
	}
	b.conversation(r, path, last)
	return r
}

// rowID names a row by what it is, not by where the log holds it.
func (b *builder) rowID(branch string, segment int) string {
	h := sha256.New()
	for _, part := range []string{Schema, b.tenant, b.run, b.id, branch, strconv.Itoa(segment)} {
		h.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// tokens takes over the per-token columns, and fills in the turn table.
func (r *Row) tokens(q *sequence) {
	r.InputIDs, r.LossMask = q.ids, q.mask
	if q.hasLogprobs() {
		r.Logprobs = q.logprobs
	}
	if q.hasVersions() {
		r.Versions = q.versions
	}
	for _, s := range q.spans {
		r.TurnStart = append(r.TurnStart, int32(s.start))
		r.TurnEnd = append(r.TurnEnd, int32(s.end))
		r.TurnFinish = append(r.TurnFinish, s.turn.FinishReason)
		r.TurnSeq = append(r.TurnSeq, int64(s.turn.sequence))
	}
	if least, most, known := q.trainedVersions(); known {
		r.VersionMin, r.VersionMax = &least, &most
	}
}

func (r *Row) rewarded(s *Session, branch *event.BranchSealed, q *sequence) {
	if reward := s.reward(""); reward != nil {
		v := float32(reward.Reward)
		r.Reward, r.RewardsJSON = &v, string(reward.Components)
	}
	for i, span := range q.spans {
		reward := s.reward(span.turn.Turn)
		if reward == nil {
			continue
		}
		if r.TurnReward == nil {
			r.TurnReward = slices.Repeat([]float32{float32(math.NaN())}, len(q.spans))
		}
		r.TurnReward[i] = float32(reward.Reward)
	}
	r.Advantage = number(s.annotation(advantage, branch.Branch))
	r.RemoveSample = s.sealed.Status == "aborted" || string(s.annotation(removeSample, branch.Branch)) == "true"
}

// sampling fills in what the turns agree on.
func (r *Row) sampling(q *sequence) {
	kinds := make(map[string]bool)
	var all [][]byte
	same := true
	for i, s := range q.spans {
		kinds[kindName(s.turn.LogprobKind)] = true
		all = append(all, s.turn.Sampling)
		same = same && (i == 0 || string(s.turn.Sampling) == string(all[0]))
	}
	r.LogprobKind = "mixed"
	if len(kinds) == 1 {
		r.LogprobKind = kindName(q.spans[0].turn.LogprobKind)
	}
	r.Temperature, r.TopP = agreed(all, "temperature"), agreed(all, "top_p")
	if same {
		r.Sampling = string(all[0])
		return
	}
	list := []byte{'['}
	for i, one := range all {
		if i > 0 {
			list = append(list, ',')
		}
		if len(one) == 0 {
			one = []byte("null")
		}
		list = append(list, one...)
	}
	r.Sampling = string(append(list, ']'))
}

// identity fills in who produced the tokens, and when. Of what turns may
// disagree on, the last one's counts.
func (r *Row) identity(q *sequence, last *turn) {
	first := q.spans[0].turn
	r.Model, r.Engine = last.Model, last.Engine
	r.TokenizerSHA256, r.TemplateSHA256 = last.Tokenizer, last.Template
	r.Stream, r.SeqFirst, r.SeqLast = last.stream, int64(first.sequence), int64(last.sequence)
	if first.StartedUs > 0 {
		r.StartedAt = time.UnixMicro(first.StartedUs).UTC()
	}
	if last.FinishedUs > 0 {
		r.FinishedAt = time.UnixMicro(last.FinishedUs).UTC()
	}
	var generation int64
	for _, s := range q.spans {
		generation += s.turn.GenerationUs
	}
	if generation > 0 {
		seconds := float64(generation) / 1e6
		r.GenTimeS = &seconds
	}
}

func (q *sequence) trainable() (n int) {
	for _, m := range q.mask {
		n += int(m)
	}
	return n
}

func kindName(k event.LogprobKind) string {
	switch k {
	case event.LogprobKind_LOGPROB_KIND_RAW:
		return "raw"
	case event.LogprobKind_LOGPROB_KIND_PROCESSED:
		return "processed"
	default:
		return "unknown"
	}
}

// agreed returns the number that all objects have under key, or nil.
func agreed(objects [][]byte, key string) *float32 {
	var value *float32
	for i, o := range objects {
		if rawjson.KindOf(o) != rawjson.Object {
			return nil
		}
		raw, _ := rawjson.Get(o, key)
		v := number(raw)
		if v == nil || i > 0 && *v != *value {
			return nil
		}
		value = v
	}
	return value
}

func number(raw []byte) *float32 {
	f, err := strconv.ParseFloat(string(raw), 32)
	if err != nil {
		return nil
	}
	v := float32(f)
	return &v
}

func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
