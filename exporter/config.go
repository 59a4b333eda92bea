package exporter

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/parquet"
	"turnlog.dev/exporter/rows"
)

// What becomes of a group that lacks sessions at its deadline.
const (
	PartialDrop   = "drop"
	PartialExport = "export"
)

// Config says what is exported and when.
type Config struct {
	// Tenant whose trajectory stream it is.
	Tenant string
	// Flush is how long rows that are ready wait for others.
	Flush time.Duration
	// FlushTokens of rows that are ready are exported at once.
	FlushTokens int64
	// RewardDeadline is how long a sealed session waits for its reward. It is
	// exported without one after that.
	RewardDeadline time.Duration
	// GroupDeadline is how long a group waits for its sessions, from the first
	// that was sealed on. A group of unknown size waits as long.
	GroupDeadline time.Duration
	// Partial is PartialDrop or PartialExport.
	Partial string
	// Grades that are exported: of A, B, C and D. X never is.
	Grades []string
	// Classes that are exported; empty is all.
	Classes []string
	// Bounds of a row's length in tokens; 0 is none.
	MinTokens, MaxTokens int
	// Bounds of the reward; nil is none. A row without a reward passes.
	MinReward, MaxReward *float64
	// MinVersion is the oldest weight version of a trainable token; nil is
	// none. An unknown version passes.
	MinVersion *int64
	// KeepTail keeps the context after the last turn that is trained.
	KeepTail bool
	// FileTokens is the number of tokens after which a shard ends.
	FileTokens int64
	// Compression of the pages: zstd or none.
	Compression string
	// CompactEvery is how often Run merges small shards; 0 is never.
	CompactEvery time.Duration
	// CompactFiles is the number of shards of a run, less than half full, from
	// which on Run merges them.
	CompactFiles int
	// CollectAfter is how long a file is kept that no manifest lists any more,
	// so that whoever has pinned an older manifest can go on. 0 keeps all.
	CollectAfter time.Duration
	// Temp is the folder where shards are staged; empty is the system's.
	Temp string
}

// DefaultConfig returns the configuration that the documentation describes.
func DefaultConfig() Config {
	return Config{
		Tenant:         "default",
		Flush:          10 * time.Second,
		FlushTokens:    64 << 20,
		RewardDeadline: time.Hour,
		GroupDeadline:  time.Hour,
		Partial:        PartialDrop,
		Grades:         []string{"A", "B", "C"},
		FileTokens:     128 << 20,
		Compression:    string(parquet.Zstd),
		CompactEvery:   time.Hour,
		CompactFiles:   16,
		CollectAfter:   24 * time.Hour,
	}
}

// Validate reports all faults at once.
func (c Config) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("exporter: "+format, args...))
		}
	}
	fault(c.Tenant == "", "tenant is empty")
	fault(c.Flush <= 0, "flush is %s; it must be above 0", c.Flush)
	fault(c.FlushTokens <= 0, "flush_tokens is %d; it must be above 0", c.FlushTokens)
	fault(c.RewardDeadline < 0, "reward_deadline is %s; it must not be negative", c.RewardDeadline)
	fault(c.GroupDeadline < 0, "group_deadline is %s; it must not be negative", c.GroupDeadline)
	fault(c.Partial != PartialDrop && c.Partial != PartialExport, "partial is %q; it must be drop or export", c.Partial)
	fault(len(c.Grades) == 0, "grades is empty")
	for _, g := range c.Grades {
		fault(!slices.Contains([]string{"A", "B", "C", "D"}, g), "grades has %q; it may have A, B, C and D", g)
	}
	fault(c.MinTokens < 0 || c.MaxTokens < 0, "min_tokens and max_tokens must not be negative")
	fault(c.MaxTokens > 0 && c.MinTokens > c.MaxTokens, "min_tokens is above max_tokens")
	fault(c.MinReward != nil && c.MaxReward != nil && *c.MinReward > *c.MaxReward, "min_reward is above max_reward")
	fault(c.FileTokens <= 0, "file_tokens is %d; it must be above 0", c.FileTokens)
	fault(c.Compression != string(parquet.Zstd) && c.Compression != string(parquet.None),
		"compression is %q; it must be zstd or none", c.Compression)
	fault(c.CompactEvery < 0, "compact_every is %s; it must not be negative", c.CompactEvery)
	fault(c.CompactFiles < 2, "compact_files is %d; it must be at least 2", c.CompactFiles)
	fault(c.CollectAfter < 0, "collect_after is %s; it must not be negative", c.CollectAfter)
	return errors.Join(faults...)
}

// Row groups are small enough that a reader which takes one at a time stays
// small, and large enough that zstd finds what the rows of a group share.
const (
	rowGroupRows   = 128
	rowGroupTokens = 4 << 20
)

// planned is the part of the configuration that rows and bytes depend on.
func (c Config) planned() manifest.Config {
	grades := slices.Clone(c.Grades)
	slices.Sort(grades)
	return manifest.Config{
		Schema: rows.Schema, Writer: parquet.Version, Tenant: c.Tenant,
		Compression: c.Compression,
		Partial:     c.Partial, Grades: slices.Compact(grades), Classes: c.Classes,
		MinTokens: c.MinTokens, MaxTokens: c.MaxTokens,
		MinReward: c.MinReward, MaxReward: c.MaxReward, MinVersion: c.MinVersion,
		KeepTail: c.KeepTail, FileTokens: c.FileTokens,
		RowGroupRows: rowGroupRows, RowGroupTokens: rowGroupTokens,
	}
}

func policy(c manifest.Config) rows.Policy {
	return rows.Policy{
		Grades: c.Grades, Classes: c.Classes, MinTokens: c.MinTokens, MaxTokens: c.MaxTokens,
		MinReward: c.MinReward, MaxReward: c.MaxReward, MinVersion: c.MinVersion, KeepTail: c.KeepTail,
	}
}
