// Package manifest is the exporter's memory beside the shards: an append-only
// log of plans and manifests, of which MANIFEST.md documents every field.
//
// A plan says what will be exported; it is published before anything is
// written, and everything written is a function of it and of the log. A
// manifest with the same number says what was written. Whoever finds a plan
// without its manifest executes the plan: two exporters that do so write the
// same bytes.
package manifest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Formats of the files, in their first field. A reader refuses others.
const (
	PlanFormat     = "turnlog.plan.v1"
	ManifestFormat = "turnlog.manifest.v1"
	SnapshotFormat = "turnlog.snapshot.v1"
)

// Errors, found with errors.Is.
var (
	// ErrFormat is a file of a format that this program does not read.
	ErrFormat = errors.New("manifest: unknown format")
	// ErrMalformed is a file that contradicts itself or the files before it.
	ErrMalformed = errors.New("manifest: malformed")
	// ErrGap is a number that is missing in the log of manifests.
	ErrGap = errors.New("manifest: gap")
)

// Op is what a manifest does to the set of files.
type Op string

// The operations.
const (
	// Add adds files with rows that no file before held.
	Add Op = "add"
	// Replace adds files that hold the rows of the removed ones.
	Replace Op = "replace"
	// Drop removes files.
	Drop Op = "drop"
)

// Profile is which rows and columns a file has.
type Profile string

// The profiles of files in a manifest.
const (
	Traj        Profile = "traj"
	Rewards     Profile = "rewards"
	Annotations Profile = "annotations"
	Blobs       Profile = "blobs"
)

// Plan is decided before anything is written.
type Plan struct {
	Format string `json:"format"`
	// ID is the number of the plan and of its manifest, from 1.
	ID int64 `json:"id"`
	Op Op    `json:"op"`
	// Time is when it was decided: its date is the partition dt of the files.
	Time time.Time `json:"time"`
	// Config is what rows and bytes depend on besides the log; ConfigHash is
	// the sha256 of its JSON.
	Config     Config `json:"config"`
	ConfigHash string `json:"config_hash"`
	// Groups are settled by this plan, ordered by run and group.
	Groups []Group `json:"groups,omitempty"`
	// Late are rewards and annotations that came after their session was
	// exported.
	Late []Late `json:"late,omitempty"`
	// Replaces are the files that a Replace or Drop removes.
	Replaces []string `json:"replaces,omitempty"`
	// Cursor is where a follower begins once this plan is executed; Replace and
	// Drop leave it as it is.
	Cursor Cursor `json:"cursor,omitempty"`
}

// Config is what rows and bytes depend on besides the log.
type Config struct {
	Schema string `json:"schema"`
	// Writer names the program and the libraries that encode.
	Writer string `json:"writer"`
	Tenant string `json:"tenant"`
	// Compression of the pages: zstd or none.
	Compression string `json:"compression"`
	// Partial is drop or export: what happens to a group that lacks sessions.
	Partial string `json:"partial"`
	// Grades that are exported, best first.
	Grades []string `json:"grades"`
	// Classes that are exported; empty is all.
	Classes []string `json:"classes,omitempty"`
	// Bounds of a row's length in tokens; 0 is none.
	MinTokens int `json:"min_tokens,omitempty"`
	MaxTokens int `json:"max_tokens,omitempty"`
	// Bounds of a row's reward; a row without one passes.
	MinReward *float64 `json:"min_reward,omitempty"`
	MaxReward *float64 `json:"max_reward,omitempty"`
	// MinVersion is the oldest weight version that a row may contain.
	MinVersion *int64 `json:"min_version,omitempty"`
	// KeepTail keeps the context after the last trainable token.
	KeepTail bool `json:"keep_tail,omitempty"`
	// FileTokens is the number of tokens after which a file ends.
	FileTokens int64 `json:"file_tokens"`
	// A row group ends before the first group with which it would have more
	// rows or tokens.
	RowGroupRows   int   `json:"row_group_rows"`
	RowGroupTokens int64 `json:"row_group_tokens"`
}

// Outcome is what became of a group.
type Outcome string

// The outcomes.
const (
	Exported Outcome = "exported"
	Dropped  Outcome = "dropped"
)

// Reason is why a group was dropped.
type Reason string

// The reasons. Filtered and Malformed are found when the plan is executed.
const (
	// Partial: sessions were missing at the deadline.
	Partial Reason = "partial"
	// Void: no attempt counts.
	Void Reason = "void"
	// Filtered: the policy left a session without a row.
	Filtered Reason = "filtered"
	// Malformed: a session contradicts itself.
	Malformed Reason = "malformed"
)

// Group is the n sessions sampled for one prompt, all attempts included.
type Group struct {
	Run string `json:"run"`
	// Group is the group's id; empty for a session that is in none.
	Group   string  `json:"group,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Reason says why it was dropped.
	Reason Reason `json:"reason,omitempty"`
	// Size is how many sessions the group should have; 0 is unknown.
	Size     int32     `json:"size,omitempty"`
	Sessions []Session `json:"sessions"`
}

// Session is one session of a settled group.
type Session struct {
	Session string `json:"session"`
	// Partition and Through: events of the session up to this position of its
	// partition are settled.
	Partition int    `json:"partition"`
	Through   uint64 `json:"through"`
	// Counts is true for the attempt that gives the rows.
	Counts bool `json:"counts,omitempty"`
}

// Late is a range of one session's events whose rewards and annotations came
// after its rows were exported.
type Late struct {
	Run       string `json:"run"`
	Session   string `json:"session"`
	Partition int    `json:"partition"`
	// After is exclusive, Through inclusive.
	After   uint64 `json:"after"`
	Through uint64 `json:"through"`
}

// Cursor is a position per partition up to which every session is settled.
type Cursor []Position

// Position is where one partition of the trajectory stream stands.
type Position struct {
	Partition int `json:"partition"`
	// Stream names the physical stream that After counts in.
	Stream string `json:"stream"`
	After  uint64 `json:"after"`
}

// Manifest says what the plan of the same number has written.
type Manifest struct {
	Format string `json:"format"`
	ID     int64  `json:"id"`
	// Parent is ID-1: the manifest that this one follows; 0 is none.
	Parent int64     `json:"parent"`
	Op     Op        `json:"op"`
	Schema string    `json:"schema"`
	Time   time.Time `json:"time"`
	// PlanHash is the sha256 of the plan's file.
	PlanHash   string `json:"plan_sha256"`
	ConfigHash string `json:"config_hash"`
	Files      []File `json:"files,omitempty"`
	// Removed are paths of files that are part of the set no longer.
	Removed []string `json:"removed,omitempty"`
	// Settled are the plan's groups, with what became of them in the end.
	Settled []Group `json:"settled,omitempty"`
	Late    []Late  `json:"late,omitempty"`
	Cursor  Cursor  `json:"cursor,omitempty"`
	Counts  Counts  `json:"counts"`
	// What the rows were tokenized and rendered with.
	Tokenizers []string `json:"tokenizers,omitempty"`
	Templates  []string `json:"templates,omitempty"`
}

// File is one file of the set.
type File struct {
	// Path is relative to the root of the sink.
	Path    string  `json:"path"`
	Profile Profile `json:"profile"`
	Run     string  `json:"run"`
	Bytes   int64   `json:"bytes"`
	SHA256  string  `json:"sha256"`
	Rows    int64   `json:"rows"`
	// RowGroups are the numbers of rows of the file's row groups.
	RowGroups []int64 `json:"row_groups"`
	// The rest is of profile traj only.
	Groups     int64            `json:"groups,omitempty"`
	Tokens     int64            `json:"tokens,omitempty"`
	Trainable  int64            `json:"trainable,omitempty"`
	VersionMin *int64           `json:"version_min,omitempty"`
	VersionMax *int64           `json:"version_max,omitempty"`
	Statuses   map[string]int64 `json:"statuses,omitempty"`
	Grades     map[string]int64 `json:"grades,omitempty"`
}

// Counts sums what a plan settled, kept and left out.
type Counts struct {
	GroupsExported int64 `json:"groups_exported,omitempty"`
	// GroupsPartial are exported though sessions are missing.
	GroupsPartial int64 `json:"groups_partial,omitempty"`
	GroupsDropped int64 `json:"groups_dropped,omitempty"`
	// DroppedBy counts the dropped groups by Reason.
	DroppedBy map[string]int64 `json:"groups_dropped_by,omitempty"`
	Rows      int64            `json:"rows,omitempty"`
	Tokens    int64            `json:"tokens,omitempty"`
	Trainable int64            `json:"trainable,omitempty"`
	// RowsLeftOut counts rows by why they were not exported: untrainable,
	// grade, class, length, reward, version, group.
	RowsLeftOut map[string]int64 `json:"rows_left_out,omitempty"`
	// SessionsMalformed contradict themselves: a recorder's fault.
	SessionsMalformed int64 `json:"sessions_malformed,omitempty"`
	LateRewards       int64 `json:"late_rewards,omitempty"`
	// Annotations that no column holds, late or not; Blobs that rows refer to.
	Annotations int64 `json:"annotations,omitempty"`
	Blobs       int64 `json:"blobs,omitempty"`
}

// Folder holds plans, manifests and snapshots, below the folder of a schema. It
// begins with a dot, so that programs that load every file of a tree pass it by.
const Folder = ".turnlog"

const digits = 12

func name(kind string, id int64) string { return fmt.Sprintf("%s-%0*d.json", kind, digits, id) }

// parseName is the inverse of name.
func parseName(file string) (kind string, id int64, ok bool) {
	stem, isJSON := strings.CutSuffix(file, ".json")
	kind, number, found := strings.Cut(stem, "-")
	if !isJSON || !found || len(number) < digits {
		return "", 0, false
	}
	id, err := strconv.ParseInt(number, 10, 64)
	return kind, id, err == nil
}
