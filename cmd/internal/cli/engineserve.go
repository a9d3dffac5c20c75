package cli

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rouse-dev/rouse/engine/serve"
	"github.com/rouse-dev/rouse/internal/flagset"
)

// flagNames are other names: shorter ones, and vLLM's.
var flagNames = map[string]string{
	"max-seqs": "max-num-seqs", "context": "max-model-len", "served-model-name": "name", "lora-modules": "lora",
	"tensor-parallel-size": "shards",
}

func servingFlags(f *pflag.FlagSet, cfg *serve.Config) {
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if other, ok := flagNames[name]; ok {
			name = other
		}
		return pflag.NormalizedName(name)
	})
	flagset.Add(f, cfg)
	addParsed(f, &cfg.MaxBody, "max-body", "", "largest body of a request, as a number of bytes or like 64MiB; 0 for 64MiB", byteSize)
	addParsed(f, &cfg.CacheBytes, "kv-cache-memory-bytes", "", "memory of the KV cache, as a number of bytes or like 512MiB; 0 for 1GiB", byteSize)
	addParsed(f, &cfg.TileLimit, "tile-limit", "", "all files of repacked weights together, as a number of bytes or like 20GiB; those not used for longest go; 0 for 64GiB", byteSize)
	f.BoolFunc("enable-prefix-caching", "keep computed prompts for others that begin alike (default true)", func(text string) error {
		on, err := strconv.ParseBool(text)
		cfg.NoPrefix = !on
		return err
	})
	addParsed(f, &cfg.ConversationMemory, "conversation-memory", "256MiB", "memory of the KV cache that a sleep of level 1 keeps for conversations that go on, such as 256MiB; 0 keeps nothing", byteSize)
	addParsed(f, &cfg.ConversationLimit, "conversation-limit", "1GiB", "all files there together, such as 1GiB; those not used for longest go; 0 for no files", byteSize)
	f.StringToStringVar(&cfg.Adapters, "lora", nil, "LoRA adapter as name=path, a GGUF file or a PEFT folder; repeat for more")
}

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
