package cli

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rouse-dev/rouse/engine/serve"
)

// flagNames are alternative names of flags of `rouse engine serve`: shorter ones, and vLLM's if ours are shorter.
var flagNames = map[string]string{
	"max-seqs": "max-num-seqs", "context": "max-model-len", "served-model-name": "name", "lora-modules": "lora",
	"tensor-parallel-size": "shards",
}

// servingFlags adds the flags of `rouse engine serve` that say how the model is served. They have vLLM's names if they
// mean the same.
func servingFlags(f *pflag.FlagSet, cfg *serve.Config) {
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if other, ok := flagNames[name]; ok {
			name = other
		}
		return pflag.NormalizedName(name)
	})
	f.StringArrayVar(&cfg.Names, "name", nil, "name that clients may use for the model; repeat for more (default: the file's name)")
	f.IntVar(&cfg.Threads, "threads", 0, "threads that compute; 0 for one less than there are processors")
	f.IntVar(&cfg.MaxSeqs, "max-num-seqs", 0, "sequences that run at once, the others wait; 0 for 32")
	f.IntVar(&cfg.Budget, "max-num-batched-tokens", 0, "tokens of one step, prompts and answers together; 0 for 512")
	addParsed(f, &cfg.MaxBody, "max-body", "", "largest body of a request, as a number of bytes or like 64MiB; 0 for 64MiB", byteSize)
	f.IntVar(&cfg.Context, "max-model-len", 0, "tokens of prompt and answer together; 0 for the model's own limit")
	addParsed(f, &cfg.CacheBytes, "kv-cache-memory-bytes", "", "memory of the KV cache, as a number of bytes or like 512MiB; 0 for 1GiB", byteSize)
	f.StringVar(&cfg.TileDir, "tile-dir", "", "`folder` of repacked weights (default: rouse/tiles in the user's cache)")
	addParsed(f, &cfg.TileLimit, "tile-limit", "", "all files of repacked weights together, as a number of bytes or like 20GiB; those not used for longest go; 0 for 64GiB", byteSize)
	f.BoolFunc("enable-prefix-caching", "keep computed prompts for others that begin alike (default true)", func(text string) error {
		on, err := strconv.ParseBool(text)
		cfg.NoPrefix = !on
		return err
	})
	addParsed(f, &cfg.ConversationMemory, "conversation-memory", "256MiB", "memory of the KV cache that a sleep of level 1 keeps for conversations that go on, such as 256MiB; 0 keeps nothing", byteSize)
	f.StringVar(&cfg.ConversationFolder, "conversation-folder", "", "`folder` in which conversations are kept when the model is unloaded (default: they are not); the files hold what clients wrote")
	addParsed(f, &cfg.ConversationLimit, "conversation-limit", "1GiB", "all files there together, such as 1GiB; those not used for longest go; 0 for no files", byteSize)
	f.DurationVar(&cfg.ConversationAge, "conversation-age", 24*time.Hour, "how long a file there lives that is not used; 0 for ever")
	f.IntVar(&cfg.Draft, "num-speculative-tokens", 0, "tokens guessed ahead where a text repeats itself; 0 for none")
	f.StringToStringVar(&cfg.Adapters, "lora", nil, "LoRA adapter as name=path, a GGUF file or a PEFT folder; repeat for more")
	f.IntVar(&cfg.MaxAdapters, "max-loras", 0, "LoRA adapters that may be loaded at once; 0 for as many as the memory holds")
	f.StringVar(&cfg.ToolParser, "tool-call-parser", "auto", "how the model writes calls of tools: hermes, llama3_json, mistral, json, or auto for what its chat template shows")
	f.StringVar(&cfg.Pooling, "pooling", "", "vectors of /v1/embeddings are made by: mean, last or cls (default: as the model says, else last)")
}

// byteSize parses a number of bytes with a unit.
func byteSize(text string) (int64, error) {
	number, shift := text, 0
	for unit, bits := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40} {
		if short, ok := strings.CutSuffix(text, unit); ok {
			number, shift = strings.TrimSpace(short), bits
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > 1<<50>>shift {
		return 0, errors.New("want a number of bytes, or one with KiB, MiB or GiB")
	}
	return n << shift, nil
}
