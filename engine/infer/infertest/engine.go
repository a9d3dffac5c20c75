package infertest

import (
	"context"
	"errors"

	"github.com/rouse-dev/rouse/engine"
	"github.com/rouse-dev/rouse/engine/infer"
	"github.com/rouse-dev/rouse/engine/lora"
	"github.com/rouse-dev/rouse/engine/tokenizer"
	"github.com/rouse-dev/rouse/engine/worker"
)

// Engine returns an engine for inf, which the caller closes after Run has returned.
func Engine(inf infer.Inferencer, tok *tokenizer.Tokenizer, cfg engine.Config) (*engine.Engine, error) {
	model := func(ctx context.Context, _ worker.Load) (infer.Inferencer, error) {
		b := &borrowed{Inferencer: inf}
		if k, ok := inf.(infer.Keeper); ok {
			return struct {
				*borrowed
				infer.Keeper
			}{b, k}, inf.Wake(ctx)
		}
		return b, inf.Wake(ctx)
	}
	w := worker.New(worker.Config{Launch: worker.InProcess(worker.Builder{Model: model, Adapter: worker.OpenAdapter}), Depth: 2})
	return engine.Over(w, worker.Describe(inf), tok, cfg)
}

// borrowed gets its model back in the state it had.
type borrowed struct {
	infer.Inferencer
	adapters []int32
}

func (b *borrowed) LoadAdapter(id int32, a *lora.Adapter) error {
	err := b.Inferencer.LoadAdapter(id, a)
	if err == nil {
		b.adapters = append(b.adapters, id)
	}
	return err
}

func (b *borrowed) Close() error {
	for _, id := range b.adapters {
		if err := b.UnloadAdapter(id); err != nil && !errors.Is(err, infer.ErrNoAdapter) && !errors.Is(err, infer.ErrClosed) {
			return err
		}
	}
	return nil
}
