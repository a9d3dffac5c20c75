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

type loaded struct {
	tok      *tokenizer.Tokenizer
	template *chat.Template
	pooling  string // "": not specified
	about    *about
	mark     string
}

// ModelError means that a model's file can't be used; retrying does not help.
type ModelError struct{ Err error }

// Error implements error.
func (e *ModelError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ModelError) Unwrap() error { return e.Err }

// load leaves the weights to the worker. Faults of the file are a [ModelError].
func load(cfg Config) (*loaded, error) {
	if cfg.Model == pico.Name {
		f, err := gguf.Parse(pico.GGUF())
		if err != nil {
			return nil, err
		}
		return vocabulary(f)
	}
	if cfg.Projector != "" {
		if err := checkProjector(cfg.Projector); err != nil {
			return nil, &ModelError{fmt.Errorf("load projector file %s: %w", cfg.Projector, err)}
		}
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

func checkProjector(path string) error {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	_, err = model.LoadProjector(f)
	return errors.Join(err, f.Close())
}

// Check returns a [ModelError] if the engine can't serve a model file, without reading weights. template: it has its
// own.
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

// unusable: the file is why a worker can't load the model.
func unusable(path string) bool {
	f, err := gguf.Open(path)
	if err != nil {
		return path != pico.Name
	}
	_, err = model.Load(f)
	return errors.Join(err, f.Close()) != nil
}

// poolingTypes are llama.cpp's pooling_type; 0 means none.
var poolingTypes = map[uint64]string{1: "mean", 2: "cls", 3: "last"}

// vocabulary keeps no reference to the file.
func vocabulary(f *gguf.File) (*loaded, error) {
	c, _ := model.ReadConfig(f) // faults are reported by the loader of the weights
	if kind, _ := f.String("tokenizer.ggml.model"); c.Ranks && kind != "bert" {
		return nil, fmt.Errorf("the reranker has a vocabulary of the kind %q: supported is bert (WordPiece)", kind)
	}
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
	return &loaded{tok: tok, template: template, pooling: poolingTypes[kind], about: describe(f, c, template.Source()), mark: strconv.FormatUint(f.Fingerprint(), 36)}, nil
}
