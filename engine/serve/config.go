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

// Config configures a server.
type Config struct {
	// Model is the path of a GGUF file, or "pico" for the built-in model.
	Model string `flag:"model" help:"GGUF file, or \"pico\" for the model in this program (required)"`
	// Names are the model names that clients may use; the first one is listed. Default: the file's name without
	// ".gguf".
	Names []string `flag:"name" help:"name that clients may use for the model; repeat for more (default: the file's name)"`
	// Listen is "unix:/path", or the host and port of a loopback address; port 0 picks one. Default "127.0.0.1:0".
	Listen string `flag:"listen" help:"loopback <address>: host:port, http://host:port or unix:/path; port 0 picks one"`
	// Projector is the GGUF file that makes embeddings of images; "": the model reads none.
	Projector string `flag:"mmproj" help:"GGUF file of the projector of a Gemma 3 model, mmproj-….gguf, with which it reads images (default: it reads none)"`
	// Adapters are the LoRA adapters loaded at the start, by name.
	Adapters map[string]string
	// MaxAdapters is the most adapters loaded at once; 0: as many as the memory holds.
	MaxAdapters int `flag:"max-loras" help:"LoRA adapters that may be loaded at once; 0 for as many as the memory holds"`
	// Budget is the number of tokens in one step; 0: the engine's default.
	Budget int `flag:"max-num-batched-tokens" help:"tokens of one step, prompts and answers together; 0 for 512"`
	// CacheBytes bounds the memory of the KV cache; 0: the worker's default.
	CacheBytes int64
	// TileDir is the folder of repacked weights, and TileLimit bounds its files in bytes; zero values: the worker's
	// defaults.
	TileDir   string `flag:"tile-dir" help:"<folder> of repacked weights (default: rouse/tiles in the user's cache)"`
	TileLimit int64
	// NoPrefix disables the prefix cache.
	NoPrefix bool
	// ConversationMemory is the most bytes of the prefix cache that a sleep of level 1 keeps in memory; 0: nothing.
	ConversationMemory int64
	// ConversationFolder is where the prefix cache is written in a sleep of level 2 and at the end; "": nowhere.
	// ConversationLimit bounds the files of all models there, in bytes (0: no files). ConversationAge is how long an
	// unused file lives (0: forever).
	ConversationFolder string `flag:"conversation-folder" help:"<folder> in which conversations are kept when the model is unloaded (default: they are not); the files hold what clients wrote"`
	ConversationLimit  int64
	ConversationAge    time.Duration `flag:"conversation-age" help:"how long a file there lives that is not used; 0 for ever"`
	// Draft is the most draft tokens of a sequence in one step (prompt lookup); 0: none.
	Draft int `flag:"num-speculative-tokens" help:"tokens guessed ahead where a text repeats itself; 0 for none"`
	// Threads is the number of compute threads; 0: the inferencer's default.
	Threads int `flag:"threads" help:"threads that compute; 0 for one less than there are processors"`
	// MaxSeqs is the number of sequences that run at once; 0: the engine's default. Others wait.
	MaxSeqs int `flag:"max-num-seqs" help:"sequences that run at once, the others wait; 0 for 32"`
	// Context bounds prompt and answer, in tokens; 0: the model's context.
	Context int `flag:"max-model-len" help:"tokens of prompt and answer together; 0 for the model's own limit"`
	// Worker is where the model runs: in this process, in its own process, or depending on its size.
	Worker worker.Place `flag:"worker" help:"where the model lives: \"inside\" this process, in a \"process\" of its own that is replaced when it dies, or as its size says"`
	// Device is the compute device: "cpu" or "cuda"; "": CPU. Python is the interpreter of the CUDA worker; "":
	// python3.
	Device string `flag:"device" help:"what computes: cpu, or cuda, which needs Python with torch"`
	Python string `flag:"python" help:"Python <interpreter> for --device cuda (default: python3)"`
	// Shards is the number of worker processes that share the model; 0: one.
	Shards int `flag:"shards" help:"worker processes that share the model, each with its part of the rows and heads; 0 for one"`
	// Sync schedules no batch before the output of the last one; for comparison.
	Sync bool `flag:"sync" help:"wait for the output of a step before the next one is made"`
	// ToolParser is the format of the model's tool calls: "qwen3_coder", "hermes", "llama3_json", "mistral" or "json"; "" or "auto":
	// detected from the chat template.
	ToolParser string `flag:"tool-call-parser" help:"how the model writes calls of tools: qwen3_coder, hermes, llama3_json, mistral, json, or auto for what its chat template shows"`
	// Pooling is the pooling of /v1/embeddings: "mean", "last" or "cls"; "": the model's, else "last".
	Pooling string `flag:"pooling" help:"vectors of /v1/embeddings are made by: mean, last or cls (default: as the model says, else last, of encoders mean)"`
	// MaxBody bounds a request's body, in bytes; 0: 64 MiB, the same as in the proxies in front.
	MaxBody int64
	// DrainTimeout is how long running requests may continue when the server shuts down; 0: 30 seconds.
	DrainTimeout time.Duration
	// WriteTimeout bounds each write to a client that does not read; 0: one minute.
	WriteTimeout time.Duration
	// Version is the answer of GET /version; empty: "dev".
	Version string
	// Log gets the server's log; nil discards it.
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

// Validate returns an error for the first invalid field, after applying defaults.
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
