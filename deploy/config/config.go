// Package config is turnlog's configuration: one YAML file, every key of which
// is also an environment variable and a flag.
//
// The file is read strictly: an unknown key is an error, as is an unknown
// TURNLOG_ variable. A flag wins over a variable, a variable over the file, the
// file over the defaults. The key gateway.cache_bytes is the variable
// TURNLOG_GATEWAY_CACHE_BYTES and the flag --gateway.cache-bytes; a list, such
// as models, is given to both as YAML.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config is everything an operator can say.
type Config struct {
	// Data is the folder of the embedded log, keys and, by default, shards.
	Data   string `yaml:"data" help:"folder for the log, keys and shards"`
	Tenant string `yaml:"tenant" help:"isolation domain"`
	// Listen is the address of the gateway's HTTP surface.
	Listen   string   `yaml:"listen" help:"address that the gateway listens on"`
	Keys     Keys     `yaml:"keys"`
	Log      Log      `yaml:"log"`
	Models   []Model  `yaml:"models" help:"models to serve, as YAML"`
	Gateway  Gateway  `yaml:"gateway"`
	Recorder Recorder `yaml:"recorder"`
	Exporter Exporter `yaml:"exporter"`
	Logging  Logging  `yaml:"logging"`
}

// Keys says where secrets are. Files are made at the first start, mode 0600.
type Keys struct {
	AdminFile string `yaml:"admin_file" help:"file with admin keys, one a line (default DATA/admin.key)"`
	SeedFile  string `yaml:"seed_file" help:"file with the secret that session keys come from, the same for all gateways (default DATA/session.seed)"`
}

// Log says where the log is and what an acknowledgement means.
type Log struct {
	Durability string `yaml:"durability" help:"what acknowledged means: dev, single or cluster"`
	// URL of a NATS server, or of several with commas between them.
	URL         string `yaml:"url" help:"NATS servers to use, with commas between them; empty starts an embedded one"`
	Credentials string `yaml:"credentials" help:"NATS credentials file"`
	TokenFile   string `yaml:"token_file" help:"file with the secret that log.listen asks for, and that log.url is told; with log.listen it is made if it is missing"`
	TLS         TLS    `yaml:"tls"`
	// Monitor are the monitoring addresses of the servers at URL.
	Monitor []string `yaml:"monitor" help:"monitoring addresses of the NATS servers, such as http://node1:8222"`
	Listen  string   `yaml:"listen" help:"address that the embedded log also listens on; empty for none"`
	// MaxBytes bounds the streams together; 0 is a fifth of the free disk.
	MaxBytes int64 `yaml:"max_bytes" help:"room for the log in bytes; 0 is a fifth of the free disk"`
	Streams  int   `yaml:"streams" help:"streams that the 64 partitions are spread over"`
	// Trajectories is for commands that read.
	Trajectories string `yaml:"trajectories" help:"trajectory stream to read: one that turnlog replay --into stream:NAME made; empty is the recorder's"`
}

// Model is one model that the gateway serves.
type Model struct {
	// Name is what agents ask for, and what turns and rows say.
	Name string `yaml:"name"`
	// Aliases are other names that agents may ask for, with * for any text.
	Aliases []string `yaml:"aliases,omitempty"`
	// UpstreamModel is what the backends call the model, where that is another
	// name: one of vLLM's or sglang's adapters, a model of a llama.cpp router, a
	// provider's name. They have to serve it. Without it they are asked for Name
	// where they list that, else for their first; openai's are asked for Name.
	UpstreamModel string `yaml:"upstream_model,omitempty"`
	// Files is where the tokenizer and template are: a folder, a Hugging Face
	// id, or "demo" for the embedded demo model.
	Files    string `yaml:"files"`
	Revision string `yaml:"revision,omitempty"`
	// Family overrides what is detected from the files.
	Family string `yaml:"family,omitempty"`
	// History says what becomes of what the template would write otherwise than
	// it was sampled, such as the thinking of earlier turns: keep, the default,
	// leaves the sampled ids; vendor has the template rewrite them, in a new root.
	// Runs and sessions may say otherwise.
	History       string `yaml:"history,omitempty"`
	ContextLength int    `yaml:"context_length,omitempty"`
	// Engine is the wire that the backends speak, one of Engines; mock runs the
	// mock engine in this process, openai takes text and not ids.
	Engine string `yaml:"engine"`
	// Parser is engine to have sglang or vLLM parse replies, for a model whose
	// format has no parser here; answers are then given whole.
	Parser string `yaml:"parser,omitempty"`
	// Backends are the engines' URLs; see Discover.
	Backends []string `yaml:"backends,omitempty"`
	// Discover says what Backends are: URLs; with dns, URLs of which the name
	// stands for all its addresses, looked up again every ten seconds; with env,
	// names of environment variables, the first of which that is set lists URLs.
	Discover string `yaml:"discover,omitempty"`
	// Policy says which backend a request goes to: sticky, the default, keeps a
	// session on one, prefix goes by what a backend has read, round_robin and
	// least_busy by nothing else.
	Policy string `yaml:"policy,omitempty"`
	// APIKeyFile holds the key that the backends ask for.
	APIKeyFile string `yaml:"api_key_file,omitempty"`
	// Concurrency bounds the requests that one backend gets at a time.
	Concurrency int `yaml:"concurrency,omitempty"`
	// RoutedExperts asks sglang or vLLM which experts of a mixture model were
	// chosen for each token; the servers need --enable-return-routed-experts.
	// sglang does not say the shape: RoutedTopK is how many experts a layer
	// chooses, RoutedLayers how many layers do.
	RoutedExperts bool           `yaml:"routed_experts,omitempty"`
	RoutedLayers  int            `yaml:"routed_layers,omitempty"`
	RoutedTopK    int            `yaml:"routed_top_k,omitempty"`
	Sampling      SamplingPolicy `yaml:"sampling,omitempty"`
}

// SamplingPolicy holds JSON objects of sampling parameters.
type SamplingPolicy struct {
	Default  string `yaml:"default,omitempty"`
	Override string `yaml:"override,omitempty"`
}

// Gateway is the part of a gateway's configuration that is not about models.
type Gateway struct {
	Instance         string        `yaml:"instance" help:"name of this process in the log"`
	CacheBytes       int           `yaml:"cache_bytes" help:"memory for sessions in bytes"`
	AppendTimeout    time.Duration `yaml:"append_timeout" help:"longest wait for the log"`
	GenerateTimeout  time.Duration `yaml:"generate_timeout" help:"longest generation"`
	DefaultMaxTokens int           `yaml:"default_max_tokens" help:"length of an answer when nobody says"`
	MaxBody          int64         `yaml:"max_body" help:"largest request body in bytes"`
	PingEvery        time.Duration `yaml:"ping_every" help:"silence after which a stream gets a ping"`
}

// Recorder is a recorder's configuration.
type Recorder struct {
	CacheBytes int     `yaml:"cache_bytes" help:"memory for sessions in bytes"`
	Policy     Policy  `yaml:"policy"`
	Archive    Archive `yaml:"archive"`
}

// Archive says when sessions that are over leave the log, and where to. All
// processes of a tenant must agree on it.
type Archive struct {
	After            time.Duration `yaml:"after" help:"how long after its last event a session that is over stays in the log and can be rewarded, before it goes to the archive; 0 keeps all in the log"`
	Every            time.Duration `yaml:"every" help:"how often sessions are looked for that may go"`
	Dir              string        `yaml:"dir" help:"folder of the archive; empty is the folder archive beside the shards, wherever those are"`
	KeepTrajectories bool          `yaml:"keep_trajectories" help:"keep the trajectory stream in the log, and wait for no exporter"`
}

// Policy decides what a recorder marks as trainable, and how it grades;
// recorder/README.md has the tables. A replay folds by it too.
type Policy struct {
	Train          []string `yaml:"train" help:"classes of turns to train, of main, subagent, compaction, side and probe; the others are masked"`
	Abandoned      string   `yaml:"abandoned" help:"turns that the session left behind for others that continue the same turn, and what follows them: train or mask"`
	Undelivered    string   `yaml:"undelivered" help:"last turns whose answer never reached the agent: train or mask"`
	CutOff         string   `yaml:"cut_off" help:"turns that ended for their length: train or mask"`
	RewrittenCalls string   `yaml:"rewritten_calls" help:"turns whose tool call the client changed: train or mask"`
	Reasoning      string   `yaml:"reasoning" help:"the thinking inside answers: train or mask"`
	MaskFlags      []string `yaml:"mask_flags" help:"flags of the reply parser whose turns are masked, such as malformed_call"`
	Grades         []string `yaml:"grades" help:"other grades for reasons of grade B and C, such as greedy=B or constrained:=A"`
	Audit          float64  `yaml:"audit" help:"share of turns whose prompt is rendered again and compared, 0 to 1"`
}

// Exporter is an exporter's configuration.
type Exporter struct {
	Dir            string        `yaml:"dir" help:"folder for shards (default DATA/shards)"`
	Flush          time.Duration `yaml:"flush" help:"longest wait of a finished row for its shard"`
	FlushTokens    int64         `yaml:"flush_tokens" help:"tokens of finished rows that are written at once"`
	RewardDeadline time.Duration `yaml:"reward_deadline" help:"how long a closed session waits for its reward"`
	GroupDeadline  time.Duration `yaml:"group_deadline" help:"how long a closed session waits for the rest of its group"`
	Partial        string        `yaml:"partial" help:"what happens to a group past its deadline: drop or export"`
	Grades         []string      `yaml:"grades" help:"grades to export"`
	Classes        []string      `yaml:"classes" help:"classes to export; empty is all"`
	MinTokens      int           `yaml:"min_tokens" help:"shortest row; 0 is no bound"`
	MaxTokens      int           `yaml:"max_tokens" help:"longest row; 0 is no bound"`
	MinReward      *float64      `yaml:"min_reward" help:"least reward; a row without one passes"`
	MaxReward      *float64      `yaml:"max_reward" help:"highest reward; a row without one passes"`
	MinVersion     *int64        `yaml:"min_version" help:"oldest weight version of a trained token; an unknown one passes"`
	KeepTail       bool          `yaml:"keep_tail" help:"keep the context after the last trained token"`
	FileTokens     int64         `yaml:"file_tokens" help:"tokens after which a shard ends"`
	Compression    string        `yaml:"compression" help:"of shards: zstd or none"`
	CompactEvery   time.Duration `yaml:"compact_every" help:"how often small shards are merged; 0 is never"`
	CompactFiles   int           `yaml:"compact_files" help:"shards of a run, less than half full, from which on they are merged"`
	CollectAfter   time.Duration `yaml:"collect_after" help:"how long a file that was merged away is kept for readers of older manifests; 0 is for ever"`
	Temp           string        `yaml:"temp" help:"folder where shards are prepared; empty is the system's"`
	S3             S3            `yaml:"s3"`
}

// S3 is a bucket for shards; with an endpoint it is used instead of a folder.
type S3 struct {
	Endpoint  string `yaml:"endpoint" help:"S3-compatible store for shards, HOST or HOST:PORT; empty uses exporter.dir"`
	Bucket    string `yaml:"bucket" help:"bucket"`
	Prefix    string `yaml:"prefix" help:"comes before every key"`
	Region    string `yaml:"region" help:"region"`
	PathStyle bool   `yaml:"path_style" help:"put the bucket into the path"`
	Insecure  bool   `yaml:"insecure" help:"plain HTTP instead of HTTPS"`
}

// TLS is for connections to the log that go through a port; all are PEM files.
type TLS struct {
	CA   string `yaml:"ca" help:"authorities that the servers at log.url are trusted by; empty are the system's"`
	Cert string `yaml:"cert" help:"certificate: of the server where log.listen is set, of this client where log.url is"`
	Key  string `yaml:"key" help:"key of that certificate"`
}

// Logging says how the program talks to people.
type Logging struct {
	Level  string `yaml:"level" help:"debug, info, warn or error"`
	Format string `yaml:"format" help:"text or json; empty is text on a terminal and json elsewhere"`
}

// Default returns the configuration of a program that was told nothing.
func Default() Config {
	return Config{
		Data:   "data",
		Tenant: "default",
		Listen: "127.0.0.1:8420",
		Log:    Log{Durability: "dev", Streams: 1},
		Models: []Model{{
			Name: "demo", Aliases: []string{"*"}, Files: "demo", Engine: "mock", ContextLength: 131072,
		}},
		Gateway: Gateway{
			Instance: "gateway", CacheBytes: 512 << 20, AppendTimeout: 30 * time.Second, GenerateTimeout: 30 * time.Minute,
			DefaultMaxTokens: 4096, MaxBody: 64 << 20, PingEvery: 10 * time.Second,
		},
		Recorder: Recorder{CacheBytes: 512 << 20, Archive: Archive{Every: 10 * time.Minute}, Policy: Policy{
			Train: []string{"main", "subagent", "compaction"}, Abandoned: "mask", Undelivered: "mask",
			CutOff: "train", RewrittenCalls: "train", Reasoning: "train",
		}},
		Exporter: Exporter{
			Flush: 10 * time.Second, FlushTokens: 64 << 20, RewardDeadline: time.Hour, GroupDeadline: time.Hour, Partial: "drop",
			Grades: []string{"A", "B", "C"}, Classes: []string{}, FileTokens: 128 << 20, Compression: "zstd",
			CompactEvery: time.Hour, CompactFiles: 16, CollectAfter: 24 * time.Hour,
		},
		Logging: Logging{Level: "info"},
	}
}

// AdminFile is the file of the admin keys.
func (c Config) AdminFile() string {
	return cmp.Or(c.Keys.AdminFile, filepath.Join(c.Data, "admin.key"))
}

// SeedFile is the file of the session keys' secret.
func (c Config) SeedFile() string {
	return cmp.Or(c.Keys.SeedFile, filepath.Join(c.Data, "session.seed"))
}

// Shards is the folder of the shards. Those of another trajectory stream than
// the recorder's are in one of their own.
func (c Config) Shards() string {
	folder := "shards"
	if c.Log.Trajectories != "" {
		folder += "-" + c.Log.Trajectories
	}
	return cmp.Or(c.Exporter.Dir, filepath.Join(c.Data, folder))
}

// Servers is URL to be shown: without passwords and tokens.
func (l Log) Servers() string {
	urls := strings.Split(l.URL, ",")
	for i, text := range urls {
		urls[i] = shown(text)
	}
	return strings.Join(urls, ",")
}

// shown is an address without a password, and without a token, which stands there
// alone.
func shown(address string) string {
	if u, err := url.Parse(strings.TrimSpace(address)); err == nil && u.User != nil {
		if _, named := u.User.Password(); !named {
			u.User = url.User("xxxxx")
		}
		return u.Redacted()
	}
	if at := strings.LastIndexByte(address, '@'); at >= 0 {
		return "xxxxx" + address[at:] // whatever stands before it
	}
	return address
}

var streamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Validate reports all faults at once, by key.
func (c Config) Validate() error {
	var faults []error
	check := func(ok bool, key, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("config: %s: %s", key, fmt.Sprintf(format, args...)))
		}
	}
	check(c.Data != "", "data", "a folder is needed")
	check(isAddress(c.Listen), "listen", "%q is not HOST:PORT", c.Listen)
	check(c.Log.Listen == "" || isAddress(c.Log.Listen), "log.listen", "%q is not HOST:PORT", c.Log.Listen)
	check(c.Log.Listen == "" || c.Log.TokenFile != "" || isLocal(c.Log.Listen), "log.listen",
		"%s can be reached from other machines, and who reaches it can change the log: set log.token_file, here and where log.url is this address", c.Log.Listen)
	check((c.Log.TLS.Cert == "") == (c.Log.TLS.Key == ""), "log.tls", "cert and key belong together")
	check(slices.Contains([]string{"dev", "single", "cluster"}, c.Log.Durability), "log.durability",
		"%q is none of dev, single, cluster", c.Log.Durability)
	check(c.Log.Durability != "cluster" || c.Log.URL != "", "log.url", "durability cluster needs the URLs of three NATS servers")
	check(c.Log.Durability == "dev" || c.Log.URL == "" || len(c.Log.Monitor) > 0, "log.monitor",
		"durability %s needs the servers' monitoring addresses, which show how they sync", c.Log.Durability)
	check(c.Log.Streams >= 1 && c.Log.Streams <= 64 && c.Log.Streams&(c.Log.Streams-1) == 0, "log.streams", "must be a power of two up to 64")
	check(c.Log.MaxBytes >= 0, "log.max_bytes", "must not be negative")
	check(c.Log.Trajectories == "" || streamName.MatchString(c.Log.Trajectories), "log.trajectories", "%q is not 1 to 64 letters, digits, _ or -", c.Log.Trajectories)
	check(len(c.Models) > 0, "models", "at least one is needed")
	names := map[string]bool{}
	for i, m := range c.Models {
		key := fmt.Sprintf("models[%d]", i)
		check(m.Name != "", key+".name", "is missing")
		check(!names[m.Name], key+".name", "%q is there twice", m.Name)
		names[m.Name] = true
		check(m.Files != "" || m.Engine == "openai", key+".files", "is missing: a folder, a Hugging Face id, or demo")
		check(m.Parser == "" || m.Parser == "engine" && (m.Engine == "sglang" || m.Engine == "vllm"), key+".parser",
			"%q: it can only be engine, for sglang and vllm", m.Parser)
		check(slices.Contains([]string{"", "keep", "vendor"}, m.History), key+".history", "%q is neither keep nor vendor", m.History)
		check(m.History == "" || m.Engine != "openai", key+".history", "an engine of openai takes text and renders the history itself")
		check(slices.Contains(Engines, m.Engine), key+".engine", "%q is none of %v", m.Engine, Engines)
		check(m.Engine == "mock" || len(m.Backends) > 0, key+".backends", "engine %s needs at least one URL", m.Engine)
		check(slices.Contains([]string{"", "dns", "env"}, m.Discover), key+".discover", "%q is neither dns nor env", m.Discover)
		check(slices.Contains([]string{"", "sticky", "prefix", "round_robin", "least_busy"}, m.Policy), key+".policy",
			"%q is none of sticky, prefix, round_robin, least_busy", m.Policy)
		for _, b := range m.Backends {
			if m.Discover == "env" {
				break
			}
			u, err := url.Parse(b)
			check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", key+".backends", "%q is not http://HOST:PORT", b)
			check(err != nil || u.User == nil, key+".backends", "a key in an address would be shown wherever the address is: use api_key_file")
		}
		check(!m.RoutedExperts || slices.Contains([]string{"mock", "sglang", "vllm"}, m.Engine), key+".routed_experts",
			"engine %s does not say them; sglang and vllm do", m.Engine)
		check(m.RoutedExperts && m.Engine != "vllm" || m.RoutedLayers == 0 && m.RoutedTopK == 0, key+".routed_top_k",
			"the shape is for sglang with routed_experts: true")
		check(m.RoutedLayers >= 0 && m.RoutedTopK >= 0 && (m.RoutedLayers == 0 || m.RoutedTopK > 0), key+".routed_layers",
			"must not be negative, and needs routed_top_k")
		check(m.ContextLength >= 0, key+".context_length", "must not be negative")
	}
	check(c.Exporter.S3.Endpoint == "" || c.Exporter.S3.Bucket != "", "exporter.s3.bucket", "is missing")
	check(!strings.Contains(c.Exporter.S3.Endpoint, "://"), "exporter.s3.endpoint",
		"%q is not HOST or HOST:PORT; exporter.s3.insecure says plain HTTP", c.Exporter.S3.Endpoint)
	check(slices.Contains([]string{"debug", "info", "warn", "error"}, c.Logging.Level), "logging.level", "%q is none of debug, info, warn, error", c.Logging.Level)
	check(slices.Contains([]string{"", "text", "json"}, c.Logging.Format), "logging.format", "%q is neither text nor json", c.Logging.Format)
	return errors.Join(faults...)
}

func isAddress(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// isLocal reports whether an address can be reached from this machine alone.
func isLocal(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err != nil || host == "localhost" || ip != nil && ip.IsLoopback()
}

// Engines are the wires that a model's backends may speak.
var Engines = []string{"mock", "sglang", "vllm", "llamacpp", "openai"}
