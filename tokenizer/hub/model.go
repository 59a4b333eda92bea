package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"turnlog.dev/tokenizer"
	"turnlog.dev/tokenizer/bpe"
	"turnlog.dev/tokenizer/chat"
)

// Model is what a model's files say about text.
type Model struct {
	// Ref is the name that it was opened by, Revision the commit if it came
	// from the cache or the hub.
	Ref, Revision string
	// Files are the files that were read, with their sha256 in hex.
	Files map[string]string
	// Tokenizer is exact, or Open would have failed.
	Tokenizer tokenizer.Tokenizer
	// Template is nil if the model has no chat template.
	Template *chat.Template
	// SpecialTokens are the tokens with a name: bos_token, eos_token, ...
	SpecialTokens chat.SpecialTokens
	// StopTokens are the ids that end generation: those of
	// generation_config.json, else the eos_token's.
	StopTokens []uint32
	// ModelType is model_type of config.json; empty if not said.
	ModelType string
}

// wanted are the files that say something about text. Nothing else is fetched.
func wanted(name string) bool {
	switch name {
	case "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json", "generation_config.json",
		"chat_template.jinja", "chat_template.json", "tekken.json", "tiktoken.model":
		return true
	}
	return strings.HasPrefix(name, templateFolder) && strings.HasSuffix(name, ".jinja")
}

// templateFolder holds templates beside the default one.
const templateFolder = "additional_chat_templates/"

// reader reads a model's files and notes what it has read.
type reader struct {
	files fs.FS
	sums  map[string]string
}

// read returns nil if there is no such file.
func (r *reader) read(name string) ([]byte, error) {
	data, err := fs.ReadFile(r.files, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	r.sums[name] = hex.EncodeToString(sum[:])
	return data, nil
}

// decode reads a JSON file into a value, which stays as it is if there is no
// such file.
func (r *reader) decode(name string, into any) error {
	data, err := r.read(name)
	if err != nil || data == nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (h Hub) load(files fs.FS) (*Model, error) {
	r := &reader{files: files, sums: map[string]string{}}
	m := &Model{Files: r.sums, SpecialTokens: chat.SpecialTokens{}}
	var config tokenizerConfig
	if err := r.decode("tokenizer_config.json", &config); err != nil {
		return nil, err
	}
	var about struct {
		ModelType string `json:"model_type"`
	}
	if err := r.decode("config.json", &about); err != nil {
		return nil, err
	}
	m.ModelType = about.ModelType
	var err error
	if m.Tokenizer, err = h.loadTokenizer(r, config); err != nil {
		return nil, err
	}
	if err := m.readSpecialTokens(r, config); err != nil {
		return nil, err
	}
	if m.Template, err = readTemplate(r, config, m.SpecialTokens); err != nil {
		return nil, err
	}
	return m, m.readStopTokens(r)
}

// loadTokenizer opens the first of tokenizer.json, tekken.json and
// tiktoken.model that there is.
func (h Hub) loadTokenizer(r *reader, config tokenizerConfig) (tokenizer.Tokenizer, error) {
	data, err := r.read("tokenizer.json")
	if err != nil {
		return nil, err
	}
	if data != nil {
		t, err := bpe.Load(data)
		if errors.Is(err, bpe.ErrUnsupported) && h.Fallback != nil {
			return h.Fallback(data)
		}
		if err != nil {
			return nil, err // not t: a nil pointer in an interface is not nil
		}
		return t, nil
	}
	if data, err = r.read("tekken.json"); err != nil {
		return nil, err
	}
	if data != nil {
		return loaded(bpe.LoadTekken(data))
	}
	if data, err = r.read("tiktoken.model"); err != nil {
		return nil, err
	}
	if data != nil {
		return loadRanks(r, data, config)
	}
	if _, err := fs.Stat(r.files, "tokenizer.model"); err == nil {
		return nil, fmt.Errorf("%w: tokenizer.json; there is only a tokenizer.model of SentencePiece, which is not supported: "+
			"convert it with transformers (AutoTokenizer.from_pretrained(...).save_pretrained(...))", ErrNotFound)
	}
	return nil, fmt.Errorf("%w: tokenizer.json, tekken.json or tiktoken.model", ErrNotFound)
}

func loaded(t *bpe.Tokenizer, err error) (tokenizer.Tokenizer, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}

// reservedTokens is how many ids Kimi's code sets aside behind the ranks.
const reservedTokens = 256

// loadRanks opens a tiktoken.model. Its pattern is in code that the model
// ships; the code's class name says which it is.
func loadRanks(r *reader, ranks []byte, config tokenizerConfig) (tokenizer.Tokenizer, error) {
	if config.Class != "TikTokenTokenizer" {
		return nil, fmt.Errorf("%w: the pattern of tiktoken.model for the tokenizer class %q", bpe.ErrUnsupported, config.Class)
	}
	raw, err := r.read("tokenizer_config.json")
	if err != nil {
		return nil, err
	}
	added, err := bpe.AddedFromConfig(raw)
	if err != nil {
		return nil, err
	}
	// As tokenization_kimi.py does: every reserved id without a name gets one.
	named := map[uint32]bool{}
	for _, a := range added {
		named[a.ID] = true
	}
	base := uint32(strings.Count(strings.TrimSpace(string(ranks)), "\n") + 1)
	for id := base; id < base+reservedTokens; id++ {
		if !named[id] {
			added = append(added, tokenizer.AddedToken{ID: id, Content: fmt.Sprintf("<|reserved_token_%d|>", id), Special: true})
		}
	}
	return loaded(bpe.LoadTiktoken(ranks, bpe.PatternKimi, added))
}

// tokenizerConfig is the part of tokenizer_config.json that is used.
type tokenizerConfig struct {
	Class        string          `json:"tokenizer_class"`
	ChatTemplate json.RawMessage `json:"chat_template"`
	namedTokens
}

// namedTokens are the special tokens with a name, each a string, null or an
// object with content.
type namedTokens struct {
	BOS  namedToken `json:"bos_token"`
	EOS  namedToken `json:"eos_token"`
	UNK  namedToken `json:"unk_token"`
	SEP  namedToken `json:"sep_token"`
	PAD  namedToken `json:"pad_token"`
	CLS  namedToken `json:"cls_token"`
	Mask namedToken `json:"mask_token"`
}

type namedToken string

func (t *namedToken) UnmarshalJSON(raw []byte) error {
	if raw[0] != '{' {
		var s *string
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		if s != nil {
			*t = namedToken(*s)
		}
		return nil
	}
	var o struct{ Content string }
	err := json.Unmarshal(raw, &o)
	*t = namedToken(o.Content)
	return err
}

func (n namedTokens) addTo(m chat.SpecialTokens) {
	for name, token := range map[string]namedToken{
		"bos_token": n.BOS, "eos_token": n.EOS, "unk_token": n.UNK, "sep_token": n.SEP,
		"pad_token": n.PAD, "cls_token": n.CLS, "mask_token": n.Mask,
	} {
		if token != "" {
			m[name] = string(token)
		}
	}
}

// readSpecialTokens takes tokenizer_config.json's, which win over those of the
// older special_tokens_map.json.
func (m *Model) readSpecialTokens(r *reader, config tokenizerConfig) error {
	var older namedTokens
	if err := r.decode("special_tokens_map.json", &older); err != nil {
		return err
	}
	older.addTo(m.SpecialTokens)
	config.addTo(m.SpecialTokens)
	return nil
}

// readTemplate finds the chat template as transformers does: chat_template.jinja
// and the folder beside it, else chat_template.json, else the member of
// tokenizer_config.json, which is a string or a list of named templates.
func readTemplate(r *reader, config tokenizerConfig, special chat.SpecialTokens) (*chat.Template, error) {
	sources := map[string]string{}
	source, err := r.read("chat_template.jinja")
	if err != nil {
		return nil, err
	}
	if source != nil {
		sources[chat.Default] = string(source)
	}
	names, err := fs.Glob(r.files, templateFolder+"*.jinja")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if source, err = r.read(name); err != nil {
			return nil, err
		}
		sources[strings.TrimSuffix(path.Base(name), ".jinja")] = string(source)
	}
	if len(sources) == 0 {
		var file struct {
			Template json.RawMessage `json:"chat_template"`
		}
		if err := r.decode("chat_template.json", &file); err != nil {
			return nil, err
		}
		for _, raw := range []json.RawMessage{file.Template, config.ChatTemplate} {
			if len(sources) > 0 || len(raw) == 0 || string(raw) == "null" {
				continue
			}
			if sources, err = namedTemplates(raw); err != nil {
				return nil, fmt.Errorf("chat_template: %w", err)
			}
		}
	}
	if len(sources) == 0 {
		return nil, nil
	}
	return chat.NewSet(sources, special)
}

func namedTemplates(raw json.RawMessage) (map[string]string, error) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return map[string]string{chat.Default: one}, nil
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, errors.New("neither a template nor a list of named templates")
	}
	sources := map[string]string{}
	for _, t := range list {
		sources[t.Name] = t.Template
	}
	return sources, nil
}

func (m *Model) readStopTokens(r *reader) error {
	var generation struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	if err := r.decode("generation_config.json", &generation); err != nil {
		return err
	}
	var one *uint32
	if len(generation.EOS) > 0 {
		if json.Unmarshal(generation.EOS, &m.StopTokens) != nil {
			if err := json.Unmarshal(generation.EOS, &one); err != nil {
				return fmt.Errorf("generation_config.json: eos_token_id: %w", err)
			}
			m.StopTokens = nil
		}
		if one != nil {
			m.StopTokens = []uint32{*one}
		}
	}
	if len(m.StopTokens) == 0 {
		if id, ok := m.Tokenizer.TokenID(m.SpecialTokens["eos_token"]); ok {
			m.StopTokens = []uint32{id}
		}
	}
	slices.Sort(m.StopTokens)
	return nil
}
