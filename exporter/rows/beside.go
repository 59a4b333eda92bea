package rows

import (
	"cmp"
	"encoding/hex"
	"slices"
	"time"
)

// Schemas of what stands beside the rows, in files of their own.
const (
	RewardsSchema     = "turnlog.rewards.v1"
	AnnotationsSchema = "turnlog.annotations.v1"
	BlobsSchema       = "turnlog.blobs.v1"
)

// RewardRow is a reward that came after its rows were exported, and supersedes
// what there was. Of several for one row and turn the highest revision counts,
// and of equal ones the latest.
type RewardRow struct {
	// RowID is the row in the shards.
	RowID     string `col:"row_id"`
	RunID     string `col:"run_id"`
	SessionID string `col:"session_id"`
	GroupID   string `col:"group_id"`
	// TurnIndex is the place of a turn's reward in the row's turn table; -1 is
	// a reward of the session.
	TurnIndex   int32     `col:"turn_index"`
	Reward      float32   `col:"reward"`
	RewardsJSON string    `col:"rewards_json,null"`
	Revision    int64     `col:"revision"`
	Source      string    `col:"source,null"`
	AssignedAt  time.Time `col:"assigned_at,null"`
}

// AnnotationRow is an annotation that no column of the row holds: of a name that
// has no column, of a turn, or one that came after the row was exported. Of
// several of one name for one row and turn the highest revision counts, and of
// equal ones the latest.
type AnnotationRow struct {
	RowID     string `col:"row_id"`
	RunID     string `col:"run_id"`
	SessionID string `col:"session_id"`
	GroupID   string `col:"group_id"`
	// TurnIndex is the place in the row's turn table of the turn that it is
	// about; -1 is the row as a whole.
	TurnIndex int32  `col:"turn_index"`
	Name      string `col:"name"`
	// ValueJSON is what was given: any JSON.
	ValueJSON   string    `col:"value_json"`
	Revision    int64     `col:"revision"`
	Source      string    `col:"source,null"`
	AnnotatedAt time.Time `col:"annotated_at,null"`
}

// BlobRow says where an array is that the engine gave along a turn's tokens,
// such as routed experts. A row's turn without one has none.
type BlobRow struct {
	RowID     string `col:"row_id"`
	RunID     string `col:"run_id"`
	SessionID string `col:"session_id"`
	GroupID   string `col:"group_id"`
	TurnIndex int32  `col:"turn_index"`
	// Kind is routed_experts, or what it is besides.
	Kind string `col:"kind"`
	// The first TokenCount elements along the array's first dimension belong to
	// the row's tokens from TokenStart on; later ones to tokens that the row
	// does not have.
	TokenStart int32 `col:"token_start"`
	TokenCount int32 `col:"token_count"`
	// DType names a number as numpy does; Shape is the array's, row-major.
	DType string  `col:"dtype"`
	Shape []int64 `col:"shape"`
	// URI is where its bytes are, Bytes of them, compressed with Codec when it
	// is named; SHA256 is over them as they are stored.
	URI    string `col:"uri"`
	Codec  string `col:"codec,null"`
	Bytes  int64  `col:"bytes"`
	SHA256 string `col:"sha256"`
}

// Beside is what stands beside a session's rows.
type Beside struct {
	Rewards     []*RewardRow
	Annotations []*AnnotationRow
	Blobs       []*BlobRow
}

// Add appends what stands beside other rows.
func (b *Beside) Add(o Beside) {
	b.Rewards = append(b.Rewards, o.Rewards...)
	b.Annotations = append(b.Annotations, o.Annotations...)
	b.Blobs = append(b.Blobs, o.Blobs...)
}

// Names of annotations that have a column of the row.
const (
	advantage    = "advantage"
	removeSample = "remove_sample"
)

// Beside returns what of the session its rows do not hold: blobs, and
// annotations without a column.
func (s *Session) Beside(list []*Row) Beside {
	var b Beside
	for _, t := range s.turns {
		if len(t.Blobs) == 0 {
			continue
		}
		for row, i := range s.about(list, t.Turn, "") {
			b.Blobs = append(b.Blobs, blobs(row, i, t)...)
		}
	}
	slices.SortFunc(b.Blobs, func(x, y *BlobRow) int {
		return cmp.Or(cmp.Compare(x.RowID, y.RowID), cmp.Compare(x.TurnIndex, y.TurnIndex), cmp.Compare(x.Kind, y.Kind))
	})
	for _, a := range s.annotations {
		if a.Turn == "" && (a.Name == advantage || a.Name == removeSample) {
			continue
		}
		b.Annotations = append(b.Annotations, s.annotationRows(list, a)...)
	}
	return b
}

// Late returns the rewards and annotations that updates after one position and
// up to another brought, once for each row of the session that they are about,
// without those of a lower revision than what was there.
func (s *Session) Late(p Policy, after, through uint64) (Beside, error) {
	res, err := s.Rows(p)
	if err != nil {
		return Beside{}, err
	}
	var b Beside
	for _, r := range s.rewards {
		if r.position > after && r.position <= through && s.rewardAt(r.Turn, r.position).RewardRecorded == r.RewardRecorded {
			b.Rewards = append(b.Rewards, s.rewardRows(res.Rows, r)...)
		}
	}
	for _, a := range s.annotations {
		if a.position > after && a.position <= through {
			b.Annotations = append(b.Annotations, s.annotationRows(res.Rows, a)...)
		}
	}
	return b, nil
}

func (s *Session) rewardRows(list []*Row, r reward) (out []*RewardRow) {
	for row, turn := range s.about(list, r.Turn, "") {
		out = append(out, &RewardRow{
			RowID: row.RowID, RunID: row.RunID, SessionID: row.SessionID, GroupID: row.GroupID,
			TurnIndex: int32(turn), Reward: float32(r.Reward), RewardsJSON: string(r.Components),
			Revision: r.Revision, Source: r.Source, AssignedAt: instant(r.timeUS),
		})
	}
	return out
}

func (s *Session) annotationRows(list []*Row, a annotation) (out []*AnnotationRow) {
	for row, turn := range s.about(list, a.Turn, a.Branch) {
		if s.annotationAt(a.Name, a.Turn, row.BranchID, a.position).AnnotationRecorded != a.AnnotationRecorded {
			continue // it came too late to count
		}
		out = append(out, &AnnotationRow{
			RowID: row.RowID, RunID: row.RunID, SessionID: row.SessionID, GroupID: row.GroupID,
			TurnIndex: int32(turn), Name: a.Name, ValueJSON: string(a.Value),
			Revision: a.Revision, Source: a.Source, AnnotatedAt: instant(a.timeUS),
		})
	}
	return out
}

// about yields the rows that something about a turn, a branch, or the whole
// session is about, each with the turn's place in it or -1.
func (s *Session) about(list []*Row, turn, branch string) func(func(*Row, int) bool) {
	return func(yield func(*Row, int) bool) {
		for _, row := range list {
			at := -1
			if branch != "" && row.BranchID != branch {
				continue
			}
			if turn != "" {
				if at = s.turnIndex(row, turn); at < 0 {
					continue
				}
			}
			if !yield(row, at) {
				return
			}
		}
	}
}

// turnIndex finds a turn in a row's turn table by its place in the turn stream.
func (s *Session) turnIndex(row *Row, name string) int {
	t := s.turns[name]
	if t == nil {
		return -1
	}
	return slices.Index(row.TurnSeq, int64(t.sequence))
}

// blobs are the references of a turn's arrays, as far as the row has the turn.
func blobs(row *Row, i int, t *turn) (out []*BlobRow) {
	for _, b := range t.Blobs {
		count := int64(0)
		if len(b.Shape) > 0 {
			count = min(b.Shape[0], int64(row.TurnEnd[i])-b.Start)
		}
		if b.Start < 0 || count <= 0 {
			continue
		}
		out = append(out, &BlobRow{
			RowID: row.RowID, RunID: row.RunID, SessionID: row.SessionID, GroupID: row.GroupID,
			TurnIndex: int32(i), Kind: b.Kind, TokenStart: int32(b.Start), TokenCount: int32(count),
			DType: b.Dtype, Shape: nonNil(b.Shape), URI: b.Uri, Codec: b.Codec, Bytes: b.Size,
			SHA256: hex.EncodeToString(b.Sha256),
		})
	}
	return out
}

// instant is a time of the log; zero is unknown.
func instant(us int64) time.Time {
	if us <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
