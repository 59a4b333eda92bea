package hub_test

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"turnlog.dev/schema/message"
	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/bpe"
	"turnlog.dev/tokenizer/chat"
	"turnlog.dev/tokenizer/demo"
	"turnlog.dev/tokenizer/hub"
)

const (
	repo   = "org/model"
	commit = "0123456789abcdef0123456789abcdef01234567"
)

// server is a hub with one model.
type server struct {
	*httptest.Server
	files map[string][]byte
	store *httptest.Server // where large files are redirected to

	mu       sync.Mutex
	requests []string
	token    string // if set, what a request must carry
	leaked   bool   // the store saw a token
	failures int    // how many requests are answered with failure first
	failure  int    // a status
	corrupt  bool   // bodies are not what was announced
}

func newServer(t *testing.T) *server {
	s := &server{files: map[string][]byte{
		"config.json":            []byte(`{"model_type": "demo", "vocab_size": 8192, "architectures": ["DemoForCausalLM"], "max_position_embeddings": 4096}`),
		"generation_config.json": []byte(`{"eos_token_id": [7978, 7977]}`),
		"model.safetensors":      []byte("weights"),
		"modeling_demo.py":       []byte("import os"),
	}}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		data, err := fs.ReadFile(demo.Files(), name)
		require.NoError(t, err)
		s.files[name] = data
	}
	s.store = httptest.NewServer(http.HandlerFunc(s.serveStore))
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.store.Close)
	t.Cleanup(s.Server.Close)
	return s
}

func (s *server) serveStore(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaked = s.leaked || r.Header.Get("Authorization") != ""
	s.body(w, strings.TrimPrefix(r.URL.Path, "/"))
}

func (s *server) body(w http.ResponseWriter, name string) {
	data := s.files[name]
	if s.corrupt {
		data = bytes.ToUpper(data)
	}
	w.Write(data)
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	if s.failures > 0 {
		s.failures--
		w.WriteHeader(s.failure)
		return
	}
	if s.token != "" && r.Header.Get("Authorization") != "Bearer "+s.token {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch revision, isList := strings.CutPrefix(r.URL.Path, "/api/models/"+repo+"/revision/"); {
	case isList && (revision == "main" || revision == "v1" || revision == commit):
		info := map[string]any{"sha": commit}
		var siblings []map[string]string
		for name := range s.files {
			siblings = append(siblings, map[string]string{"rfilename": name})
		}
		siblings = append(siblings, map[string]string{"rfilename": "additional_chat_templates/../../../evil.jinja"})
		info["siblings"] = siblings
		json.NewEncoder(w).Encode(info)
	case strings.HasPrefix(r.URL.Path, "/"+repo+"/resolve/"+commit+"/"):
		s.serveFile(w, r, strings.TrimPrefix(r.URL.Path, "/"+repo+"/resolve/"+commit+"/"))
	case strings.Contains(r.URL.Path, "/org/old"): // renamed
		http.Redirect(w, r, strings.Replace(r.URL.Path, "/org/old", "/"+repo, 1), http.StatusTemporaryRedirect)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// serveFile answers as the hub does: large files are named by their sha256 and
// redirected to a store, others by git's hash.
func (s *server) serveFile(w http.ResponseWriter, r *http.Request, name string) {
	data, ok := s.files[name]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if len(data) > 100_000 {
		sum := sha256.Sum256(data)
		w.Header().Set("X-Linked-Etag", `"`+hex.EncodeToString(sum[:])+`"`)
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(data)))
		http.Redirect(w, r, s.store.URL+"/"+name, http.StatusFound)
		return
	}
	sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(data), data))
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:])+`"`)
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	if r.Method == http.MethodGet {
		s.body(w, name)
	}
}

func (s *server) hub(t *testing.T) hub.Hub {
	return hub.Hub{Endpoint: s.URL, Cache: t.TempDir()}
}

func TestAModelIsDownloadedOnceAndThenFoundInTheCache(t *testing.T) {
	s := newServer(t)
	h := s.hub(t)
	var files []string
	h.Progress = func(p hub.Progress) {
		require.LessOrEqual(t, p.Done, p.Total)
		if p.Done == p.Total && (len(files) == 0 || files[len(files)-1] != p.File) {
			files = append(files, p.File)
		}
	}
	m, err := h.Open(t.Context(), repo)
	require.NoError(t, err)
	require.Equal(t, commit, m.Revision)
	require.ElementsMatch(t, []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}, files, "no weights and no code")
	require.Equal(t, []uint32{7977, 7978}, m.StopTokens)
	require.Equal(t, "demo", m.ModelType)
	require.Equal(t, "<|im_end|>", m.SpecialTokens["eos_token"])
	require.Equal(t, demo.Tokenizer().Fingerprint(), m.Tokenizer.Fingerprint())
	require.Len(t, m.Files["tokenizer.json"], 64)
	out, err := m.Template.Render([]message.Message{{Role: message.User, Content: message.TextContent("hi")}}, nil, chat.Options{})
	require.NoError(t, err)
	require.Equal(t, "<|im_start|>user\nhi<|im_end|>\n", out.Text)

	asked := len(s.requests)
	for _, ref := range []string{repo, repo + "@" + commit, repo + "@main"} {
		again, err := h.Open(t.Context(), ref)
		require.NoError(t, err)
		require.Equal(t, commit, again.Revision)
	}
	require.Len(t, s.requests, asked, "the cache answers")
	h.Offline = true
	_, err = h.Open(t.Context(), repo)
	require.NoError(t, err)
	_, err = h.Open(t.Context(), "org/other")
	require.ErrorIs(t, err, hub.ErrNotFound)
	require.ErrorContains(t, err, "HF_HUB_OFFLINE")
}

func TestARenamedModelIsFound(t *testing.T) {
	m, err := newServer(t).hub(t).Open(t.Context(), "org/old")
	require.NoError(t, err)
	require.Equal(t, commit, m.Revision)
}

func TestTheCacheHasTheLayoutOfTheLibraries(t *testing.T) {
	s := newServer(t)
	h := s.hub(t)
	_, err := h.Open(t.Context(), repo+"@v1")
	require.NoError(t, err)
	root := filepath.Join(h.Cache, "models--org--model")
	ref, err := os.ReadFile(filepath.Join(root, "refs", "v1"))
	require.NoError(t, err)
	require.Equal(t, commit, string(ref))
	link, err := os.Readlink(filepath.Join(root, "snapshots", commit, "tokenizer.json"))
	require.NoError(t, err)
	sum := sha256.Sum256(s.files["tokenizer.json"])
	require.Equal(t, filepath.Join("..", "..", "blobs", hex.EncodeToString(sum[:])), link)
	err = filepath.WalkDir(h.Cache, func(path string, _ fs.DirEntry, err error) error {
		require.NotContains(t, path, "evil")
		require.NotContains(t, path, ".partial")
		return err
	})
	require.NoError(t, err)
}

func TestTheTokenGoesToTheHubAndNowhereElse(t *testing.T) {
	s := newServer(t)
	s.token = "secret"
	h := s.hub(t)
	_, err := h.Open(t.Context(), repo)
	require.ErrorIs(t, err, hub.ErrDenied)
	require.ErrorContains(t, err, "HF_TOKEN")
	h.Token = "secret"
	// The store is another host to net/http only if its name differs.
	s.store.URL = strings.Replace(s.store.URL, "127.0.0.1", "localhost", 1)
	_, err = h.Open(t.Context(), repo)
	require.NoError(t, err)
	require.False(t, s.leaked)
}

func TestAFileThatIsNotWhatWasAnnouncedIsNotKept(t *testing.T) {
	s := newServer(t)
	s.corrupt = true
	h := s.hub(t)
	_, err := h.Open(t.Context(), repo)
	require.ErrorIs(t, err, hub.ErrChecksum)
	blobs, _ := filepath.Glob(filepath.Join(h.Cache, "*", "blobs", "*"))
	require.Empty(t, blobs)
	refs, _ := filepath.Glob(filepath.Join(h.Cache, "*", "refs", "*"))
	require.Empty(t, refs)
	s.mu.Lock()
	s.corrupt = false
	s.mu.Unlock()
	_, err = h.Open(t.Context(), repo)
	require.NoError(t, err)
}

func TestWhatMayWorkNextTimeIsTriedAgain(t *testing.T) {
	for status, again := range map[int]bool{
		http.StatusInternalServerError: true, http.StatusServiceUnavailable: true, http.StatusTooManyRequests: true,
		http.StatusBadRequest: false, http.StatusNotFound: false,
	} {
		s := newServer(t)
		s.failures, s.failure = 1, status
		_, err := s.hub(t).Open(t.Context(), repo)
		if again {
			require.NoError(t, err, status)
			continue
		}
		require.ErrorContains(t, err, http.StatusText(status))
		require.Len(t, s.requests, 1)
	}
}

func TestACancelledDownloadStops(t *testing.T) {
	s := newServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.hub(t).Open(ctx, repo)
	require.ErrorIs(t, err, context.Canceled)
}

func TestUnknownModelsAndBadNamesAreNamed(t *testing.T) {
	s := newServer(t)
	h := s.hub(t)
	_, err := h.Open(t.Context(), "org/nothing")
	require.ErrorIs(t, err, hub.ErrNotFound)
	require.ErrorContains(t, err, "hub: open org/nothing: ")
	for _, ref := range []string{"", "name", "a/b/c", "../x", "a/..", "a/b@../../x", "a/b@", "/no/such/folder", "a--b/c", "a b/c", "a/b?x", "a/\u00e4", "a/b@c:d", "a/b[", "a/b`", "a/b/"} {
		_, err := h.Open(t.Context(), ref)
		require.Error(t, err, ref)
	}
	_, err = h.Open(t.Context(), "hub_test.go")
	require.ErrorContains(t, err, "name the folder")
	require.NotContains(t, strings.Join(s.requests, " "), "..")
}

func TestTheEnvironmentOfTheLibrariesIsUsed(t *testing.T) {
	home := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(home, "token"), []byte("from file\n"), 0o600))
	for _, name := range []string{"HF_TOKEN", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT"} {
		t.Setenv(name, "")
	}
	t.Setenv("HF_HOME", home)
	h := hub.FromEnv()
	require.Equal(t, filepath.Join(home, "hub"), h.Cache)
	require.Equal(t, "from file", h.Token)
	require.False(t, h.Offline)
	t.Setenv("HF_TOKEN", "own")
	t.Setenv("HF_HUB_CACHE", "/elsewhere")
	t.Setenv("HF_HUB_OFFLINE", "1")
	t.Setenv("HF_ENDPOINT", "http://mirror")
	h = hub.FromEnv()
	require.Equal(t, hub.Hub{Endpoint: "http://mirror", Token: "own", Cache: "/elsewhere", Offline: true}, h)
}

func demoModel(t *testing.T, files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for _, name := range []string{"tokenizer.json"} {
		data, err := fs.ReadFile(demo.Files(), name)
		require.NoError(t, err)
		out[name] = &fstest.MapFile{Data: data}
	}
	for name, data := range files {
		out[name] = &fstest.MapFile{Data: []byte(data)}
	}
	return out
}

func TestTemplatesAreFoundWhereTransformersFindsThem(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		tools bool
		want  string
	}{
		"config":            {map[string]string{"tokenizer_config.json": `{"chat_template": "config"}`}, false, "config"},
		"file over config":  {map[string]string{"tokenizer_config.json": `{"chat_template": "config"}`, "chat_template.jinja": "file"}, false, "file"},
		"json over config":  {map[string]string{"tokenizer_config.json": `{"chat_template": "config"}`, "chat_template.json": `{"chat_template": "json"}`}, false, "json"},
		"list":              {map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]}`}, false, "d"},
		"list with tools":   {map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]}`}, true, "t"},
		"folder with tools": {map[string]string{"chat_template.jinja": "d", "additional_chat_templates/tool_use.jinja": "t"}, true, "t"},
		"special tokens":    {map[string]string{"tokenizer_config.json": `{"chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}", "bos_token": {"content": "<b>"}, "eos_token": "<e>", "pad_token": null}`}, false, "<b><e>False"},
		"older map":         {map[string]string{"tokenizer_config.json": `{"chat_template": "{{ bos_token }}"}`, "special_tokens_map.json": `{"bos_token": "<m>"}`}, false, "<m>"},
	} {
		m, err := hub.Hub{}.OpenFS(demoModel(t, c.files), name)
		require.NoError(t, err, name)
		var tools []message.Definition
		if c.tools {
			tools = []message.Definition{{Raw: []byte("{}")}}
		}
		out, err := m.Template.Render(nil, tools, chat.Options{})
		require.NoError(t, err, name)
		require.Equal(t, c.want, out.Text, name)
	}
	m, err := hub.Hub{}.OpenFS(demoModel(t, nil), "bare")
	require.NoError(t, err)
	require.Nil(t, m.Template)
	require.Empty(t, m.StopTokens)
}

func TestARankFileOfKimiIsOpened(t *testing.T) {
	var ranks strings.Builder
	for b := range 256 {
		fmt.Fprintf(&ranks, "%s %d\n", base64Of(byte(b)), b)
	}
	files := fstest.MapFS{
		"tiktoken.model": &fstest.MapFile{Data: []byte(ranks.String())},
		"tokenizer_config.json": &fstest.MapFile{Data: []byte(`{"tokenizer_class": "TikTokenTokenizer", "eos_token": "[EOS]",
			"added_tokens_decoder": {"257": {"content": "[EOS]", "special": true}}}`)},
	}
	m, err := hub.Hub{}.OpenFS(files, "kimi")
	require.NoError(t, err)
	require.Equal(t, []uint32{'h', 'i', 257, 256}, m.Tokenizer.Encode(nil, "hi[EOS]<|reserved_token_256|>"))
	require.Equal(t, []uint32{257}, m.StopTokens)
	require.Equal(t, 512, m.Tokenizer.VocabSize())
	files["tokenizer_config.json"] = &fstest.MapFile{Data: []byte(`{"tokenizer_class": "OtherTokenizer"}`)}
	_, err = hub.Hub{}.OpenFS(files, "other")
	require.ErrorIs(t, err, bpe.ErrUnsupported)
	require.ErrorContains(t, err, "OtherTokenizer")
}

func base64Of(b byte) string {
	v, _ := json.Marshal([]byte{b})
	return strings.Trim(string(v), `"`)
}

func TestAModelWithoutATokenizerSaysWhatToDo(t *testing.T) {
	_, err := hub.Hub{}.OpenFS(fstest.MapFS{"config.json": &fstest.MapFile{Data: []byte(`{}`)}}, "weights")
	require.ErrorIs(t, err, hub.ErrNotFound)
	require.ErrorContains(t, err, "hub: open weights: not found: tokenizer.json, tekken.json or tiktoken.model")
	_, err = hub.Hub{}.OpenFS(fstest.MapFS{"tokenizer.model": &fstest.MapFile{}}, "old")
	require.ErrorContains(t, err, "convert it with transformers")
	_, err = hub.Hub{}.OpenFS(demoModel(t, map[string]string{"tokenizer_config.json": "{"}), "broken")
	require.ErrorContains(t, err, "tokenizer_config.json: ")
}

type fallback struct{ tokenizer.Tokenizer }

func TestWhatTheGoLoaderRefusesGoesToTheFallback(t *testing.T) {
	files := fstest.MapFS{"tokenizer.json": &fstest.MapFile{Data: []byte(`{"model": {"type": "Unigram"}}`)}}
	_, err := hub.Hub{}.OpenFS(files, "unigram")
	require.ErrorIs(t, err, bpe.ErrUnsupported)
	h := hub.Hub{Fallback: func([]byte) (tokenizer.Tokenizer, error) { return fallback{demo.Tokenizer()}, nil }}
	m, err := h.OpenFS(files, "unigram")
	require.NoError(t, err)
	require.IsType(t, fallback{}, m.Tokenizer)
}

func TestABarEndsWithItsLine(t *testing.T) {
	var b bytes.Buffer
	bar := hub.NewBar(&b)
	bar.Draw(hub.Progress{File: "tokenizer.json", Done: 500_000, Total: 1_000_000})
	bar.Draw(hub.Progress{File: "tokenizer.json", Done: 1_000_000, Total: 1_000_000})
	require.Contains(t, b.String(), "###############...............")
	require.True(t, strings.HasSuffix(b.String(), "1.0 of 1.0 MB\n"))
}
