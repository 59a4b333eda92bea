package demo_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/demo"
)

// sums are the files' hashes. Ids in tests and examples depend on them.
var sums = map[string]string{
	"tokenizer.json":        "e25dee6a88fcc3ee0f384f32ca1a445c46f622f3067c9d5b5bebc8a338093f9f",
	"tokenizer_config.json": "e5b0b4fc00abff270543d919304225b2e9f7374c0d8619024247edceb3f4dc6d",
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

func TestTheFilesAreTheKnownOnes(t *testing.T) {
	size := 0
	for name, want := range sums {
		data, err := fs.ReadFile(demo.Files(), name)
		require.NoError(t, err)
		require.Equal(t, want, sum(data), name)
		size += len(data)
	}
	require.Less(t, size, 400_000)
}

func TestTrainingAgainGivesTheSameBytes(t *testing.T) {
	dir := t.TempDir()
	out, err := exec.Command("go", "run", "./train", "chat_template.jinja", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, want := range sums {
		data, err := os.ReadFile(dir + "/" + name)
		require.NoError(t, err)
		require.Equal(t, want, sum(data), name)
	}
}

func TestTheConfigHoldsTheTemplate(t *testing.T) {
	data, err := fs.ReadFile(demo.Files(), "tokenizer_config.json")
	require.NoError(t, err)
	var config struct {
		Template string `json:"chat_template"`
		EOS      string `json:"eos_token"`
	}
	require.NoError(t, json.Unmarshal(data, &config))
	require.Equal(t, strings.TrimSuffix(demo.Template(), "\n"), config.Template)
	_, ok := demo.Tokenizer().TokenID(config.EOS)
	require.True(t, ok)
	_, err = chat.New(config.Template, nil)
	require.NoError(t, err)
}

func TestEnglishTakesFewTokens(t *testing.T) {
	const text = "Please read the file and tell me whether the test failed because of a missing value."
	require.Less(t, len(demo.Tokenizer().Encode(nil, text)), len(text)/3)
}
