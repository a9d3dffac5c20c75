package serve

import (
	"crypto/sha256"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/keep"
	"github.com/rouse-dev/rouse/engine/pico"
)

// conversations identifies the model's file now: kept blocks belong to this version.
func conversations(cfg Config) engine.Keep {
	k := engine.Keep{Memory: cfg.ConversationMemory, Dir: cfg.ConversationFolder, Limit: cfg.ConversationLimit, Age: cfg.ConversationAge, Log: cfg.Log}
	if cfg.Model == pico.Name {
		sum := sha256.Sum256(pico.GGUF())
		k.Model = &sum
		return k
	}
	m, err := keep.OpenModel(cfg.Model, cfg.ConversationFolder)
	if err != nil {
		return engine.Keep{} // the worker reports it
	}
	k.Same, k.Digest = m.Same, m.Digest
	if sum, ok := m.Known(); ok && k.Dir != "" {
		k.Model = &sum
	}
	return k
}
