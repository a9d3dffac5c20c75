package serve

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/rouse-dev/rouse/engine/chat"
	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/model"
	"github.com/rouse-dev/rouse/engine/pico"
	"github.com/rouse-dev/rouse/engine/tokenizer"
)

// loaded is the part of a model that the engine needs besides the worker.
type loaded struct {
	tok      *tokenizer.Tokenizer
	template *chat.Template
	pooling  string // how the model's vectors are meant to be made; empty: it does not say
	about    *about
	mark     string // by which it is told from another model
}

// ModelError says that the file of a model can't be used, however often it is tried.
type ModelError struct{ Err error }

// Error is what is wrong with the file.
func (e *ModelError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *ModelError) Unwrap() error { return e.Err }

// load reads the vocabulary of the model of a configuration. The worker opens the file itself.
// What is wrong with the file is a [ModelError].
func load(cfg Config) (*loaded, error) {
	if cfg.Model == pico.Name {
		f, err := gguf.Parse(pico.GGUF())
		if err != nil {
			return nil, err
		}
		return vocabulary(f)
	}
	f, err := gguf.Open(cfg.Model)
	if err != nil {
		return nil, &ModelError{err}
	}
	l, err := vocabulary(f)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, &ModelError{fmt.Errorf("load model file %s: %w", cfg.Model, err)}
	}
	l.about.Modified = modified(cfg.Model)
	return l, nil
}

// Check reads what a model file says of itself, and no weights, and returns what keeps the engine from serving it. template says
// whether the file has a chat template of its own. The error is a [ModelError].
func Check(path string) (template bool, err error) {
	f, err := gguf.Open(path)
	if err != nil {
		return false, &ModelError{err}
	}
	defer f.Close()
	source, _ := f.String("tokenizer.chat_template")
	if _, err = model.Load(f); err == nil {
		_, err = vocabulary(f)
	}
	if err != nil {
		return false, &ModelError{err}
	}
	return source != "", nil
}

// unusable says whether a worker could not load a model because of its file: an architecture that the
// engine does not have, or tensors that are missing, of another shape or of an unknown type.
func unusable(path string) bool {
	f, err := gguf.Open(path)
	if err != nil {
		return path != pico.Name
	}
	_, err = model.Load(f)
	return errors.Join(err, f.Close()) != nil
}

// poolingTypes are the numbers of llama.cpp's pooling_type; 0 is none.
var poolingTypes = map[uint64]string{1: "mean", 2: "cls", 3: "last"}

// vocabulary reads tokenizer and template; neither keeps the file.
func vocabulary(f *gguf.File) (*loaded, error) {
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		return nil, err
	}
	source, _ := f.String("tokenizer.chat_template")
	token := func(key string) string {
		if id, ok := f.Uint(key); ok && id < uint64(tok.Size()) {
			return tok.Token(int32(id))
		}
		return ""
	}
	template, err := chat.New(source, token("tokenizer.ggml.bos_token_id"), token("tokenizer.ggml.eos_token_id"))
	if err != nil {
		return nil, err
	}
	arch, _ := f.String("general.architecture")
	kind, _ := f.Uint(arch + ".pooling_type")
	return &loaded{tok: tok, template: template, pooling: poolingTypes[kind], about: describe(f, template.Source()), mark: strconv.FormatUint(f.Fingerprint(), 36)}, nil
}
