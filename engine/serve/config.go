package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/worker"
)

// Config configures a [Server]; see the help of the flags.
type Config struct {
	Model string `flag:"model" help:"GGUF file, or \"pico\" for the model in this program (required)"`
	// The first of Names is listed.
	Names []string `flag:"name" help:"name that clients may use for the model; repeat for more (default: the file's name)"`
	// Listen is as in [Listen]; "": 127.0.0.1:0.
	Listen      string `flag:"listen" help:"loopback <address>: host:port, http://host:port or unix:/path; port 0 picks one"`
	Projector   string `flag:"mmproj" help:"GGUF file of the projector of a Gemma 3 model, mmproj-….gguf, with which it reads images (default: it reads none)"`
	Adapters    map[string]string
	MaxAdapters int `flag:"max-loras" help:"LoRA adapters that may be loaded at once; 0 for as many as the memory holds"`
	Budget      int `flag:"max-num-batched-tokens" help:"tokens of one step, prompts and answers together; 0 for 512"`
	// CacheBytes bounds the KV cache; 0: the worker's default.
	CacheBytes int64
	// TileLimit bounds the files in TileDir, in bytes; 0: the worker's default.
	TileDir   string `flag:"tile-dir" help:"<folder> of repacked weights (default: rouse/tiles in the user's cache)"`
	TileLimit int64
	NoPrefix  bool
	// ConversationMemory is the most bytes of the prefix cache that a sleep of level 1 keeps; 0: none.
	ConversationMemory int64
	// ConversationLimit bounds the files of all models in ConversationFolder, in bytes; 0: no files.
	ConversationFolder string `flag:"conversation-folder" help:"<folder> in which conversations are kept when the model is unloaded (default: they are not); the files hold what clients wrote"`
	ConversationLimit  int64
	ConversationAge    time.Duration `flag:"conversation-age" help:"how long a file there lives that is not used; 0 for ever"`
	Draft              int           `flag:"num-speculative-tokens" help:"tokens guessed ahead where a text repeats itself; 0 for none"`
	Threads            int           `flag:"threads" help:"threads that compute; 0 for one less than there are processors"`
	MaxSeqs            int           `flag:"max-num-seqs" help:"sequences that run at once, the others wait; 0 for 32"`
	Context            int           `flag:"max-model-len" help:"tokens of prompt and answer together; 0 for the model's own limit"`
	Worker             worker.Place  `flag:"worker" help:"where the model lives: \"inside\" this process, in a \"process\" of its own that is replaced when it dies, or as its size says"`
	Device             string        `flag:"device" help:"what computes: cpu, or cuda, which needs Python with torch"`
	Python             string        `flag:"python" help:"Python <interpreter> for --device cuda (default: python3)"`
	Shards             int           `flag:"shards" help:"worker processes that share the model, each with its part of the rows and heads; 0 for one"`
	Sync               bool          `flag:"sync" help:"wait for the output of a step before the next one is made"`
	ToolParser         string        `flag:"tool-call-parser" help:"how the model writes calls of tools: qwen3_coder, hermes, llama3_json, mistral, json, or auto for what its chat template shows"`
	Pooling            string        `flag:"pooling" help:"vectors of /v1/embeddings are made by: mean, last or cls (default: as the model says, else last, of encoders mean)"`
	// MaxBody is in bytes; 0: 64 MiB, as in the proxies in front.
	MaxBody int64
	// DrainTimeout is for requests after the server is told to end; 0: 30 seconds.
	DrainTimeout time.Duration
	// WriteTimeout is per write; 0: one minute.
	WriteTimeout time.Duration
	Version      string
	// Log may be nil.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if len(c.Names) == 0 {
		c.Names = []string{strings.TrimSuffix(filepath.Base(c.Model), ".gguf")}
	}
	if c.MaxBody == 0 {
		c.MaxBody = 64 << 20
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 30 * time.Second
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = time.Minute
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns an error for the first invalid field.
func (c Config) Validate() error {
	if c.Model == "" {
		return fmt.Errorf("no model: give the path of a GGUF file, or %q", pico.Name)
	}
	c = c.withDefaults()
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"threads", int64(c.Threads)}, {"max-num-seqs", int64(c.MaxSeqs)}, {"max-model-len", int64(c.Context)}, {"max-body", c.MaxBody},
		{"max-num-batched-tokens", int64(c.Budget)}, {"kv-cache-memory-bytes", c.CacheBytes}, {"tile-limit", c.TileLimit}, {"num-speculative-tokens", int64(c.Draft)}, {"max-loras", int64(c.MaxAdapters)},
		{"conversation-memory", c.ConversationMemory}, {"conversation-limit", c.ConversationLimit}, {"conversation-age", int64(c.ConversationAge)},
		{"drain-timeout", int64(c.DrainTimeout)}, {"write timeout", int64(c.WriteTimeout)},
	} {
		if f.value < 0 {
			return fmt.Errorf("%s is %d: want 0 for the default, or more", f.name, f.value)
		}
	}
	if !slices.Contains(toolParsers, c.ToolParser) {
		return fmt.Errorf("tool call parser %q: want one of %q", c.ToolParser, toolParsers[1:])
	}
	if _, ok := poolings[c.Pooling]; !ok && c.Pooling != "" {
		return fmt.Errorf("pooling %q: want mean, last or cls", c.Pooling)
	}
	for _, n := range c.Names {
		if n == "" {
			return errors.New("an empty model name: leave it out to get the file's name")
		}
		if !utf8.ValidString(n) {
			return fmt.Errorf("the model name %q is not valid UTF-8: give it another with --name", n)
		}
	}
	if c.MaxAdapters > 0 && len(c.Adapters) > c.MaxAdapters {
		return fmt.Errorf("%d adapters to load at the start, and at most %d may be loaded at once: raise max-loras", len(c.Adapters), c.MaxAdapters)
	}
	for name, path := range c.Adapters {
		if err := checkAdapterName(name); err != nil {
			return err
		}
		if path == "" || slices.Contains(c.Names, name) {
			return fmt.Errorf("adapter %q from %q: want a name that is not the model's, and a path", name, path)
		}
	}
	return worker.Options{Place: c.Worker, Shards: c.Shards, Device: c.Device, Load: worker.Load{Sequences: c.MaxSeqs, Projector: c.Projector}}.Validate()
}
