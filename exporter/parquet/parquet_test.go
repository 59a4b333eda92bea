package parquet_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	arrow "github.com/apache/arrow-go/v18/parquet/file"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter/parquet"
	"turnlog.dev/exporter/rows"
)

// sample makes rows that look like those of one group: they share prompts, and
// most of their log probabilities are near zero.
func sample(n, tokens int) []*rows.Row {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	pool := make([]int32, 4*tokens)
	for i := range pool {
		pool[i] = int32(rng.ExpFloat64() * 8000)
	}
	out := make([]*rows.Row, n)
	for i := range out {
		r := &rows.Row{
			RowID: fmt.Sprintf("%032x", i), RunID: "r", SessionID: fmt.Sprintf("s%d", i), BranchID: "b0",
			BranchLabel: "main", Class: "main", SegmentCount: 1, IsLastSegment: true,
			RolloutID: fmt.Sprintf("s%d", i), GroupID: fmt.Sprintf("g%d", i/8), RolloutIndex: int32(i % 8),
			Status: "completed", StopReason: "stop", Grade: "A", GradeReasons: []string{}, LogprobKind: "processed",
			Model: "demo", Sampling: `{"temperature":1}`, TokenizerSHA256: "aa", TemplateSHA256: "bb", Engine: "mock",
			PrefixStable: i%3 > 0, Stream: "turns", SeqFirst: int64(i), SeqLast: int64(i + 7),
			MessagesJSON: `[{"role":"user","content":"` + strings.Repeat("what it says ", tokens/8) + `"}]`,
		}
		if i%4 > 0 {
			size, reward := int32(8), rng.Float32()
			r.GroupSize, r.Reward = &size, &reward
			r.StartedAt = time.UnixMicro(1_700_000_000_000_123 + int64(i)).UTC()
			r.TurnReward = []float32{float32(math.NaN()), 1}
		}
		shift := rng.IntN(tokens)
		r.InputIDs = slices.Clone(pool[i/8*7%tokens : i/8*7%tokens+tokens/3])
		r.InputIDs = append(r.InputIDs, pool[shift:shift+tokens-tokens/3]...)
		r.LossMask, r.Logprobs, r.Versions = make([]int8, tokens), make([]float32, tokens), make([]int32, tokens)
		for j := range tokens {
			r.Versions[j] = -1
			if j > tokens/3 && j%1000 > 500 {
				r.LossMask[j], r.Versions[j] = 1, 3
				if rng.IntN(3) > 0 {
					r.Logprobs[j] = -float32(rng.ExpFloat64())
				} else {
					r.Logprobs[j] = -float32(rng.ExpFloat64()) * 1e-4
				}
			}
		}
		if i%5 == 4 {
			r.Logprobs, r.Versions = nil, nil
		}
		r.TurnStart, r.TurnEnd, r.TurnFinish, r.TurnSeq = []int32{1, 2}, []int32{2, 3}, []string{"stop", "length"}, []int64{int64(i), 9}
		r.Length, r.PromptLength = int32(tokens), int32(tokens/3)
		out[i] = r
	}
	return out
}

func write(t testing.TB, groups ...[]*rows.Row) ([]byte, parquet.Digest) {
	return writeAs(t, parquet.Zstd, groups...)
}

func writeAs(t testing.TB, c parquet.Compression, groups ...[]*rows.Row) ([]byte, parquet.Digest) {
	var buf bytes.Buffer
	w, err := parquet.NewWriter[rows.Row](&buf, c)
	require.NoError(t, err)
	for _, g := range groups {
		require.NoError(t, w.Write(g))
	}
	digest, err := w.Close(parquet.Pair{Key: "turnlog.schema", Value: rows.Schema})
	require.NoError(t, err)
	require.EqualValues(t, buf.Len(), w.Size())
	return buf.Bytes(), digest
}

func TestRowsAreReadBackAsTheyWereWritten(t *testing.T) {
	in := sample(40, 300)
	in[3].InputIDs, in[3].LossMask, in[3].Logprobs, in[3].GradeReasons = []int32{}, []int8{}, []float32{}, []string{"a", ""}
	in[4].MessagesJSON, in[4].Task = "", "t"
	file, digest := write(t, in[:16], in[16:])
	require.NoError(t, parquet.Verify(bytes.NewReader(file), int64(len(file)), digest))

	var out []*rows.Row
	var sizes []int
	for group, err := range parquet.Read[rows.Row](t.Context(), bytes.NewReader(file)) {
		require.NoError(t, err)
		sizes = append(sizes, len(group))
		out = append(out, group...)
	}
	require.Equal(t, []int{16, 24}, sizes)
	for i := range in {
		// NaN equals nothing.
		require.Equal(t, fmt.Sprint(in[i].TurnReward), fmt.Sprint(out[i].TurnReward))
		in[i].TurnReward, out[i].TurnReward = nil, nil
		require.Equal(t, in[i], out[i], "row %d", i)
	}
	pf, err := arrow.NewParquetReader(bytes.NewReader(file))
	require.NoError(t, err)
	defer pf.Close()
	says := pf.MetaData().KeyValueMetadata()
	require.ElementsMatch(t, []string{"turnlog.schema", "ARROW:schema"}, says.Keys())
	require.Equal(t, rows.Schema, *says.FindValue("turnlog.schema"))
}

func TestEqualRowGroupsGiveEqualBytes(t *testing.T) {
	in := sample(64, 500)
	first, _ := write(t, in[:32], in[32:])
	for _, procs := range []int{1, 2} {
		old := runtime.GOMAXPROCS(procs)
		again, _ := write(t, in[:32], in[32:])
		runtime.GOMAXPROCS(old)
		require.True(t, bytes.Equal(first, again))
	}
}

// Whatever bit flips in the pages of a file, Verify notices, or every value is
// still what it was: some bits of page headers are not looked at by the one
// decoder or the other. (Published files have a sha256 besides.)
func TestACorruptedPageIsCaught(t *testing.T) {
	in := sample(64, 500)
	file, digest := write(t, in)
	rng := rand.New(rand.NewPCG(3, 3))
	pages := len(file) - footer(file)
	for range 400 {
		bad := slices.Clone(file)
		at := 4 + rng.IntN(pages-4)
		bad[at] ^= 1 << rng.IntN(8)
		err := parquet.Verify(bytes.NewReader(bad), int64(len(bad)), digest)
		if err == nil {
			// The flipped bit is a page header's that says nothing of the data.
			for group, err := range parquet.Read[rows.Row](t.Context(), bytes.NewReader(bad)) {
				if err != nil {
					require.ErrorIs(t, err, parquet.ErrCorrupt)
					break
				}
				require.Equal(t, fmt.Sprint(deref(in)), fmt.Sprint(deref(group)), "byte %d", at)
			}
			continue
		}
		require.ErrorIs(t, err, parquet.ErrCorrupt)
	}
	for _, n := range []int{0, 3, 100, len(file) / 2, len(file) - 1} {
		require.ErrorIs(t, parquet.Verify(bytes.NewReader(file[:n]), int64(n), digest), parquet.ErrCorrupt)
	}
}

// footer is the length of a file's footer.
func footer(file []byte) int {
	n := file[len(file)-8:]
	return 8 + int(n[0]) + int(n[1])<<8 + int(n[2])<<16 + int(n[3])<<24
}

func deref(list []*rows.Row) []string {
	out := make([]string, len(list))
	for i, r := range list {
		c := *r
		c.GroupSize, c.Reward = nil, nil
		out[i] = fmt.Sprintf("%+v", c)
	}
	return out
}

func TestVerifyNoticesAnotherValueOrderOrLength(t *testing.T) {
	for name, change := range map[string]func(in []*rows.Row){
		"a token":            func(in []*rows.Row) { in[5].InputIDs[7]++ },
		"two tokens swapped": func(in []*rows.Row) { ids := in[5].InputIDs; ids[7], ids[8] = ids[8]+1, ids[7]+1 },
		"a mask bit":         func(in []*rows.Row) { in[5].LossMask[7] ^= 1 },
		"a logprob's sign":   func(in []*rows.Row) { in[5].Logprobs[0] = float32(math.Copysign(0, -1)) },
		"a token moved to the next row": func(in []*rows.Row) {
			last := len(in[5].InputIDs) - 1
			in[6].InputIDs = append([]int32{in[5].InputIDs[last]}, in[6].InputIDs...)
			in[5].InputIDs = in[5].InputIDs[:last]
		},
		"null for empty": func(in []*rows.Row) { in[5].TurnFinish = nil },
		"a text":         func(in []*rows.Row) { in[5].SessionID += "x" },
		"two rows":       func(in []*rows.Row) { in[5], in[6] = in[6], in[5] },
		"a boolean":      func(in []*rows.Row) { in[5].PrefixStable = !in[5].PrefixStable },
		"a time":         func(in []*rows.Row) { in[5].StartedAt = in[5].StartedAt.Add(time.Microsecond) },
	} {
		t.Run(name, func(t *testing.T) {
			good, bad := sample(16, 50), sample(16, 50)
			good[5].TurnFinish, bad[5].TurnFinish = []string{}, []string{}
			_, digest := write(t, good)
			change(bad)
			file, _ := write(t, bad)
			require.ErrorIs(t, parquet.Verify(bytes.NewReader(file), int64(len(file)), digest), parquet.ErrCorrupt)
		})
	}
}

func TestARowLongerThanAPageIsVerified(t *testing.T) {
	in := sample(3, 1_300_000) // a page holds 1,048,576 ids
	in[1].InputIDs, in[1].LossMask, in[1].Logprobs, in[1].Versions = []int32{}, []int8{}, []float32{}, nil
	file, digest := write(t, in)
	require.NoError(t, parquet.Verify(bytes.NewReader(file), int64(len(file)), digest))
	in[2].InputIDs[1_299_999]++
	file, _ = write(t, in)
	require.ErrorIs(t, parquet.Verify(bytes.NewReader(file), int64(len(file)), digest), parquet.ErrCorrupt)
}

func TestNestedRowsAreVerifiedToo(t *testing.T) {
	type call struct {
		Name string `col:"name"`
	}
	type message struct {
		Role    string `col:"role"`
		Content string `col:"content,null"`
		Calls   []call `col:"tool_calls"`
	}
	type chat struct {
		Messages []message `col:"messages"`
		Tools    string    `col:"tools,null"`
	}
	var buf bytes.Buffer
	w, err := parquet.NewWriter[chat](&buf, parquet.None)
	require.NoError(t, err)
	require.NoError(t, w.Write([]*chat{
		{Messages: []message{{Role: "user", Content: "hi"}, {Role: "assistant", Calls: []call{{"ls"}, {"cat"}}}}},
		{Messages: []message{}, Tools: "[]"},
		{Messages: []message{{Role: "user"}}},
	}))
	digest, err := w.Close()
	require.NoError(t, err)
	require.NoError(t, parquet.Verify(bytes.NewReader(buf.Bytes()), int64(buf.Len()), digest))
	require.EqualValues(t, 2, digest.Columns[2].Count)
}

func TestAnotherSchemaIsRefused(t *testing.T) {
	type other struct {
		InputIDs []int64 `col:"input_ids"`
	}
	type missing struct {
		ID string `col:"no_such_column"`
	}
	file, _ := write(t, sample(2, 10))
	for _, err := range parquet.Read[other](t.Context(), bytes.NewReader(file)) {
		require.ErrorIs(t, err, parquet.ErrSchema)
	}
	for _, err := range parquet.Read[missing](t.Context(), bytes.NewReader(file)) {
		require.ErrorIs(t, err, parquet.ErrSchema)
	}
	for _, err := range parquet.Read[rows.Row](t.Context(), bytes.NewReader([]byte("PAR1 no file PAR1"))) {
		require.ErrorIs(t, err, parquet.ErrCorrupt)
	}
}

func BenchmarkWrite8k(b *testing.B) { bench(b, parquet.Zstd, false) }

func BenchmarkWriteUncompressed8k(b *testing.B) { bench(b, parquet.None, false) }

func BenchmarkWriteAndVerify8k(b *testing.B) { bench(b, parquet.Zstd, true) }

// BenchmarkZstdAlone8k compresses the same bytes and does nothing else: per
// group of 128 rows and column the ids, mask, log probabilities, versions and
// messages one after the other, as the file has them.
func BenchmarkZstdAlone8k(b *testing.B) {
	const n, tokens = 512, 8192
	in := sample(n, tokens)
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1))
	require.NoError(b, err)
	raw, size, began := 0, 0, cpu(b)
	var plain, packed []byte
	for b.Loop() {
		raw, size = 0, 0
		for group := range slices.Chunk(in, 128) {
			for column := range 5 {
				plain = plain[:0]
				for _, r := range group {
					switch column {
					case 0:
						plain, err = binary.Append(plain, binary.LittleEndian, r.InputIDs)
					case 1:
						plain, err = binary.Append(plain, binary.LittleEndian, r.LossMask)
					case 2:
						plain, err = binary.Append(plain, binary.LittleEndian, r.Logprobs)
					case 3:
						plain, err = binary.Append(plain, binary.LittleEndian, r.Versions)
					case 4:
						plain = append(plain, r.MessagesJSON...)
					}
					require.NoError(b, err)
				}
				packed = encoder.EncodeAll(plain, packed[:0])
				raw, size = raw+len(plain), size+len(packed)
			}
		}
	}
	core := (cpu(b) - began).Seconds() / float64(b.N)
	b.ReportMetric(n/core, "rows/s/core")
	b.ReportMetric(n*tokens/core/1e6, "Mtok/s/core")
	b.ReportMetric(float64(raw)/core/1e6, "MB/s/core")
	b.ReportMetric(float64(size)/(n*tokens), "B/token")
}

func bench(b *testing.B, compression parquet.Compression, verify bool) {
	const n, tokens = 512, 8192
	in := sample(n, tokens)
	size, began := 0, cpu(b)
	for b.Loop() {
		var groups [][]*rows.Row
		for g := range slices.Chunk(in, 128) {
			groups = append(groups, g)
		}
		file, digest := writeAs(b, compression, groups...)
		size = len(file)
		if verify {
			require.NoError(b, parquet.Verify(bytes.NewReader(file), int64(len(file)), digest))
		}
	}
	// A busy machine disturbs CPU time less than the clock.
	core := (cpu(b) - began).Seconds() / float64(b.N)
	b.ReportMetric(n/core, "rows/s/core")
	b.ReportMetric(n*tokens/core/1e6, "Mtok/s/core")
	b.ReportMetric(float64(size)/(n*tokens), "B/token")
}

// cpu is the process's CPU time.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
