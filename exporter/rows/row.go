// Package rows turns the trajectory stream of one session into the rows that
// trainers read. It is pure: the same updates and policy give the same rows.
//
// A row is one prefix-stable token sequence: a branch, from its root to its
// leaf. Where a turn's prompt does not begin with all of the ids before it and
// trainable tokens would be lost, the branch is cut into several rows
// (segments), each of which holds its tokens as the model saw them. A sampled
// token is trained (mask 1) in one row only, however many branches share it: the
// recorder says on which branch a turn is trained.
package rows

import "time"

// Schema names the columns of Row. Columns are never added, removed or changed
// under the same name.
const Schema = "turnlog.traj.v1"

// Row is one row of a shard. Its fields are the columns, in order; the tag
// names the column and says "null" where it may have no value: an empty string,
// a nil pointer, a nil slice or a zero time. All lists of per-token values have
// Length elements and belong to the token at the same index.
type Row struct {
	// RowID is a hash of tenant, run, session, branch and segment, and of
	// nothing that a replay changes.
	RowID     string `col:"row_id"`
	RunID     string `col:"run_id"`
	SessionID string `col:"session_id"`
	BranchID  string `col:"branch_id"`
	// BranchLabel is main, or what the branch is besides.
	BranchLabel string `col:"branch_label"`
	// Class is main, subagent, side, compaction or probe.
	Class string `col:"class"`
	// Segments number the rows of a rollout, over its branches.
	SegmentIndex  int32 `col:"segment_index"`
	SegmentCount  int32 `col:"segment_count"`
	IsLastSegment bool  `col:"is_last_segment"`
	// RolloutID is shared by all rows of one execution of the agent.
	RolloutID string `col:"rollout_id"`
	// GroupID is the session's id when it is in no group.
	GroupID      string `col:"group_id"`
	RolloutIndex int32  `col:"rollout_index"`
	GroupSize    *int32 `col:"group_size,null"`
	Attempt      int32  `col:"attempt"`
	Task         string `col:"task,null"`
	DataSource   string `col:"data_source,null"`
	Split        string `col:"split,null"`

	InputIDs []int32 `col:"input_ids"`
	// LossMask is 1 where the token was sampled and is to be trained.
	LossMask []int8 `col:"loss_mask"`
	// Logprobs are of all sampled tokens, masked or not; 0 is context. Null
	// when the engine left any out.
	Logprobs []float32 `col:"logprobs,null"`
	// Versions are weight versions; -1 is context or unknown. Null when the
	// engine reported none.
	Versions []int32 `col:"versions,null"`
	Length   int32   `col:"length"`
	// PromptLength is the index of the first 1 in LossMask; ResponseLength is
	// the rest.
	PromptLength    int32 `col:"prompt_length"`
	ResponseLength  int32 `col:"response_length"`
	TrainableTokens int32 `col:"trainable_tokens"`

	// The turn table: what each turn sampled, half open, in order.
	TurnStart  []int32  `col:"turn_start"`
	TurnEnd    []int32  `col:"turn_end"`
	TurnFinish []string `col:"turn_finish,null"`
	// TurnSeq is the position of the turn's event in the turn stream.
	TurnSeq []int64 `col:"turn_seq,null"`
	// TurnReward is NaN for a turn without a reward of its own; null when no
	// turn has one.
	TurnReward []float32 `col:"turn_reward,null"`

	Reward *float32 `col:"reward,null"`
	// RewardsJSON is an object of named components.
	RewardsJSON string `col:"rewards_json,null"`
	// Advantage is the value of an annotation of this name.
	Advantage *float32 `col:"advantage,null"`
	// Status is completed, truncated, aborted or failed.
	Status string `col:"status"`
	// StopReason is why the session was closed when it was not completed, else
	// the finish reason of the row's last turn.
	StopReason string `col:"stop_reason"`
	// RemoveSample asks the trainer to leave the row out of the loss: the
	// session was aborted, or an annotation of this name says so.
	RemoveSample bool `col:"remove_sample"`

	Grade        string   `col:"grade"`
	GradeReasons []string `col:"grade_reasons"`
	// LogprobKind is raw, processed, unknown, or mixed.
	LogprobKind string `col:"logprob_kind"`

	Model string `col:"model"`
	// Versions of the trainable tokens.
	VersionMin *int64 `col:"version_min,null"`
	VersionMax *int64 `col:"version_max,null"`
	// Null when turns differ or do not say.
	Temperature *float32 `col:"temperature,null"`
	TopP        *float32 `col:"top_p,null"`
	// Sampling is the object of sampling parameters that all turns used, or an
	// array with one object a turn where they differ.
	Sampling string `col:"sampling,null"`

	TokenizerSHA256 string `col:"tokenizer_sha256"`
	TemplateSHA256  string `col:"template_sha256"`
	Engine          string `col:"engine"`
	// PrefixStable is true when every turn's prompt begins with all ids before
	// it. Where it is false, ids that nothing trains are missing; the turn
	// table's ends say what is left of a turn.
	PrefixStable bool `col:"prefix_stable"`

	// Where the turns stand in the turn stream.
	Stream     string    `col:"stream"`
	SeqFirst   int64     `col:"seq_first"`
	SeqLast    int64     `col:"seq_last"`
	StartedAt  time.Time `col:"started_at,null"`
	FinishedAt time.Time `col:"finished_at,null"`
	// GenTimeS is the engine's time over all turns of the row, in seconds.
	GenTimeS *float64 `col:"gen_time_s,null"`

	// MessagesJSON is the conversation up to the last turn in OpenAI's form,
	// ToolsJSON what the model could call, MetadataJSON what the session was
	// opened with.
	MessagesJSON string `col:"messages_json,null"`
	ToolsJSON    string `col:"tools_json,null"`
	MetadataJSON string `col:"metadata_json,null"`
}
