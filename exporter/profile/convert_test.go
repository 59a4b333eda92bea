package profile

import (
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/exporter/manifest"
	"turnlog.dev/exporter/rows"
)

// asked is a row whose conversation asks for text and got an answer.
func asked(session, branch, label, text string) *rows.Row {
	return &rows.Row{
		SessionID: session, BranchID: branch, BranchLabel: label, GroupID: "g", RunID: "run",
		MessagesJSON: `[{"role":"system","content":"brief"},{"role":"user","content":"` + text + `"},{"role":"assistant","content":"yes"},{"role":"user","content":"more"}]`,
	}
}

func TestAChatIsTheLastRowOfABranchInOpenAIsForm(t *testing.T) {
	tools := asked("s1", "b1", "main", "")
	tools.MessagesJSON = `[{"role":"user","content":[{"type":"text","text":"list"}]},
		{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"ls","arguments":"{}"}}]},
		{"role":"tool","content":"a.go","tool_call_id":"c1","name":"ls"}]`
	tools.ToolsJSON, tools.Length = `[{"type":"function"}]`, 9
	none := asked("s3", "b1", "main", "")
	none.MessagesJSON = ""
	odd := asked("s4", "b1", "main", "")
	odd.MessagesJSON = `[{"role":"user","content":7}]`
	list, skipped := chats([]*rows.Row{
		asked("s1", "b0", "main", "first segment"), asked("s1", "b0", "main", "last segment"), tools,
		asked("s2", "b1", "main", "another session"), none, odd,
	})
	require.EqualValues(t, 2, skipped)
	require.Len(t, list, 3)
	require.Equal(t, "last segment", list[0].row.Messages[1].Content)
	require.Equal(t, "another session", list[2].row.Messages[1].Content)
	require.Equal(t, sized[chatRow]{&chatRow{Tools: `[{"type":"function"}]`, Messages: []chatMessage{
		{Role: "user", Content: "list"},
		{Role: "assistant", ReasoningContent: "hm", ToolCalls: []chatCall{{"c1", "function", chatFunction{"ls", "{}"}}}},
		{Role: "tool", Content: "a.go", ToolCallID: "c1", Name: "ls"},
	}}, 9}, list[1])
}

func TestAPromptIsWhatTheMainBranchOfAGroupWasAskedFirst(t *testing.T) {
	side, main := asked("s1", "b0", "side", "side"), asked("s1", "b1", "main", "task")
	main.MetadataJSON, main.Split, main.ToolsJSON = `{"label":7,"env_class":"demo"}`, "train", "[]"
	other := asked("s2", "b0", "side", "only side")
	other.GroupID, other.DataSource, other.MetadataJSON = "h", "source", `{"ground_truth":"x","label":["y"]}`
	mute := asked("s3", "b0", "main", "")
	mute.GroupID, mute.MessagesJSON = "i", `[{"role":"assistant","content":"first"}]`
	bad := asked("s4", "b0", "main", "q")
	bad.GroupID, bad.MetadataJSON = "j", `{"label":`

	list, skipped := new(prompter).prompts([]*rows.Row{side, main, other, mute, bad})
	require.EqualValues(t, 1, skipped)
	require.Len(t, list, 3)
	require.Equal(t, &promptRow{
		DataSource: "run", Prompt: []promptMessage{{"system", "brief"}, {"user", "task"}},
		RewardModel: rewardModel{"rule", "7"}, ExtraInfo: extraInfo{0, "train", "g"},
		Label: "7", Metadata: main.MetadataJSON, Tools: "[]", EnvClass: "demo",
	}, list[0].row)
	require.Equal(t, "only side", list[1].row.Prompt[1].Content, "a group without a main branch has what it has")
	require.Equal(t, "source", list[1].row.DataSource)
	require.Equal(t, []string{`["y"]`, "x"}, []string{list[1].row.Label, list[1].row.RewardModel.GroundTruth})
	require.EqualValues(t, 1, list[1].row.ExtraInfo.Index)
	require.Empty(t, list[2].row.Label, "what is no object says nothing")
	require.EqualValues(t, 2, list[2].row.ExtraInfo.Index)
}

func TestOnlyShardsOfTheRunAreRead(t *testing.T) {
	state := &manifest.State{Files: []manifest.File{
		{Path: "a", Run: "r", Profile: manifest.Traj}, {Path: "b", Run: "s", Profile: manifest.Traj}, {Path: "c", Run: "r", Profile: manifest.Rewards},
	}}
	paths := func(list []manifest.File) (out []string) {
		for _, f := range list {
			out = append(out, f.Path)
		}
		return out
	}
	require.Equal(t, []string{"a", "b"}, paths(shards(state, "")))
	require.Equal(t, []string{"a"}, paths(shards(state, "r")))
}

func TestARowGroupEndsByRowsOrByTokens(t *testing.T) {
	m := &materializer{dir: t.TempDir(), options: Options{Profile: Chat}}
	s := newSpread[chatRow](m)
	defer s.discard()
	add := func(n int, tokens int64) int {
		for range n {
			require.NoError(t, s.add([]sized[chatRow]{{&chatRow{Messages: []chatMessage{{Role: "user"}}}, tokens}}))
		}
		return len(s.parts[0].pending)
	}
	require.Equal(t, rowGroup-1, add(rowGroup-1, 1))
	require.Zero(t, add(1, 1))
	require.Equal(t, 1, add(1, rowGroupTokens-1))
	require.Zero(t, add(1, 1))
	require.NoError(t, s.finish())
}
