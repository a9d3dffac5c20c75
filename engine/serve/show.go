package serve

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/engine/gguf"
	"github.com/rouse-dev/rouse/engine/model"
)

// about is Ollama's description of a model. It is read with the vocabulary: the file may change.
type about struct {
	License  string         `json:"license,omitempty"`
	Params   string         `json:"parameters"` // one a line, as in a Modelfile
	Template string         `json:"template"`
	Details  details        `json:"details"`
	Info     map[string]any `json:"model_info"` // lists are null
	Tensors  []tensor       `json:"tensors"`
	Can      []string       `json:"capabilities"`
	Size     int64          `json:"size"`        // of the file; Ollama has it in lists only
	Modified time.Time      `json:"modified_at"` // zero: not a file
}

type details struct {
	Parent       string   `json:"parent_model"`
	Format       string   `json:"format"`
	Family       string   `json:"family"`
	Families     []string `json:"families"`
	Size         string   `json:"parameter_size"`
	Quantization string   `json:"quantization_level"`
}

type tensor struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
}

func describe(f *gguf.File, c model.Config, template string) *about {
	a := &about{Info: map[string]any{}, Template: template, Tensors: []tensor{}, Size: f.Size()}
	a.License, _ = f.String("general.license")
	for _, key := range f.Keys() {
		if key != "general.name" && key != "tokenizer.chat_template" { // as in Ollama; the template has its own field
			a.Info[key] = metadata(f, key)
		}
	}
	parameters := 0
	values := map[gguf.Type]int{}
	for _, t := range f.Tensors() {
		a.Tensors = append(a.Tensors, tensor{t.Name, t.Type.String(), t.Dims})
		parameters += t.Len()
		values[t.Type] += t.Len()
	}
	a.Info["general.parameter_count"] = parameters
	arch := f.Architecture()
	a.Details = details{Format: "gguf", Family: arch, Families: []string{arch}, Size: human(parameters), Quantization: fileType(f, values)}
	a.Can = []string{"completion"}
	_, _, _, embeds := f.Kind(arch + ".pooling_type")
	switch {
	case c.Ranks:
		a.Can = []string{"rerank"}
		return a
	case c.Encoder:
		a.Can = []string{"embedding"}
		return a
	case embeds:
		a.Can = []string{"embedding"}
	}
	if strings.Contains(template, "tools") {
		a.Can = append(a.Can, "tools")
	}
	if strings.Contains(template, endThought) || strings.Contains(template, "<|channel|>analysis") {
		a.Can = append(a.Can, "thinking")
	}
	return a
}

// metadata returns nil for a list, or a number that JSON lacks.
func metadata(f *gguf.File, key string) any {
	switch kind, _, _, _ := f.Kind(key); kind {
	case gguf.KindString:
		s, _ := f.String(key)
		return s
	case gguf.KindBool:
		b, _ := f.Bool(key)
		return b
	case gguf.KindFloat32, gguf.KindFloat64:
		n, _ := f.Float(key)
		switch {
		case math.IsNaN(n) || math.IsInf(n, 0):
			return nil
		case kind == gguf.KindFloat32:
			return float32(n) // fewer digits
		}
		return n
	case gguf.KindArray:
		return nil
	}
	if n, found := f.Uint(key); found {
		return n
	}
	return nil // negative, which no known key is
}

// fileTypes are llama.cpp's.
var fileTypes = map[uint64]string{
	0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L",
	14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 21: "Q2_K_S", 25: "IQ4_NL", 30: "IQ4_XS", 32: "BF16", 38: "MXFP4",
}

// fileType returns general.file_type, else the type of most values.
func fileType(f *gguf.File, values map[gguf.Type]int) string {
	if n, found := f.Uint("general.file_type"); found && fileTypes[n] != "" {
		return fileTypes[n]
	}
	most, kind := 0, ""
	for t, n := range values {
		if n > most || n == most && t.String() < kind {
			most, kind = n, t.String()
		}
	}
	return kind
}

// human formats as Ollama does: 436K, 1.75M, 7.6B.
func human(n int) string {
	switch f := float64(n); {
	case n >= 1e9 && math.Mod(f, 1e9) != 0:
		return fmt.Sprintf("%.1fB", f/1e9)
	case n >= 1e9:
		return fmt.Sprintf("%dB", n/1e9)
	case n >= 1e6 && math.Mod(f, 1e6) != 0:
		return fmt.Sprintf("%.2fM", f/1e6)
	case n >= 1e6:
		return fmt.Sprintf("%dM", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.0fK", f/1e3)
	}
	return fmt.Sprint(n)
}

func modified(path string) (t time.Time) {
	if info, err := os.Stat(path); err == nil {
		t = info.ModTime()
	}
	return t
}

type showRequest struct {
	Model   string `json:"model"`
	Verbose bool   `json:"verbose"`
}

func (s *Server) show(w http.ResponseWriter, r *http.Request) error {
	var q showRequest
	paid, name, adapter, err := s.readFor(w, r, &q, &q.Model)
	if err != nil {
		return err
	}
	defer paid.Release()
	switch {
	case q.Verbose:
		return badRequest("verbose", "verbose is not supported: lists of the file, such as the vocabulary, are never returned; leave it out")
	case s.about == nil:
		return errorf(http.StatusNotImplemented, "", "the model %s is of no file, so that nothing is known of it", quote(name))
	}
	a := *s.about
	if adapter != "" {
		a.Details.Parent = s.cfg.Names[0]
	}
	if a.Modified.IsZero() {
		a.Modified = time.Unix(s.created, 0).UTC()
	}
	a.Params = fmt.Sprintf("%-30s %d", "num_ctx", s.engine.Context())
	for _, end := range s.engine.Tokenizer().Ends() {
		a.Params += fmt.Sprintf("\n%-30s %q", "stop", end)
	}
	return writeJSON(w, a)
}
