package catalog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/engine/serve"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
	"github.com/rouse-dev/rouse/internal/names"
)

// Store is a folder of Ollama's models: manifests/HOST/NAMESPACE/NAME/TAG, and blobs/sha256-HEX.
type Store struct{ Dir string }

// Model is a model that Ollama has.
type Model struct {
	Name string
	// Size is the sum of its blobs.
	Size api.Bytes
	// Engine is why our engine can't serve it; nil: it can.
	Engine error
	// Ignores lists the declarations that our engine ignores.
	Ignores string

	store string
	file  string // the blob with its weights
}

const mostManifest = 1 << 20

// StoreOf returns Ollama's store: OLLAMA_MODELS, else below the home folder, else its Linux service's; nil: there is
// none.
func StoreOf(getenv func(string) string) *Store {
	dirs := []string{getenv("OLLAMA_MODELS")}
	if dirs[0] == "" {
		dirs = []string{"/usr/share/ollama/.ollama/models"}
		if home := getenv("HOME"); home != "" {
			dirs = slices.Insert(dirs, 0, filepath.Join(home, ".ollama", "models"))
		}
	}
	for _, dir := range dirs {
		if info, err := os.Stat(filepath.Join(dir, "manifests")); err == nil && info.IsDir() {
			return &Store{dir}
		}
	}
	return nil
}

// Models lists the store by name. Unreadable models are skipped.
func (s *Store) Models() (models []Model, left []Skipped) {
	root := filepath.Join(s.Dir, "manifests")
	err := visible(root, func(path string, info fs.FileInfo, err error) error {
		if err == nil && info.IsDir() {
			return nil
		}
		name, m := "", Model{}
		if err == nil {
			name, err = nameOf(root, path)
		}
		if err == nil {
			m, err = s.read(name, path)
		}
		if err != nil {
			left = append(left, Skipped{cmp.Or(name, printable(path)), err})
			return nil
		}
		models = append(models, m)
		return nil
	})
	if err != nil {
		left = append(left, Skipped{printable(s.Dir), err})
	}
	slices.SortFunc(models, func(a, b Model) int { return cmp.Compare(a.Name, b.Name) })
	return models, left
}

// Find returns the model of a name, where "qwen2.5" means "qwen2.5:latest". If there is none, near has similar names.
func (s *Store) Find(name string) (m Model, near []string, err error) {
	path, ok := manifestOf(name)
	if !ok {
		return Model{}, nil, fmt.Errorf("%.80q: %w", name, errNoName)
	}
	full := filepath.Join(s.Dir, "manifests", path)
	if _, err := os.Stat(full); err == nil {
		m, err := s.read(shortName(path), full)
		return m, nil, err
	}
	models, _ := s.Models()
	for _, m := range models {
		base, _, _ := strings.Cut(m.Name, ":")
		if wanted, _, _ := strings.Cut(name, ":"); base == wanted || names.Distance(name, m.Name, 2) <= 2 || names.Distance(wanted, base, 1) <= 1 {
			near = append(near, m.Name)
		}
	}
	return Model{}, near[:min(len(near), 5)], fs.ErrNotExist
}

var errNoName = errors.New("it is no name of a model of Ollama's")

var nameForm = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,79}$`)

// hostForm is the first of four parts.
var hostForm = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)

// Parts that short names omit.
const (
	usualHost      = "registry.ollama.ai"
	usualNamespace = "library"
)

func nameOf(root, path string) (string, error) {
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return "", err
	}
	if parts := strings.Split(filepath.ToSlash(rel), "/"); len(parts) != 4 || !good(parts) {
		return "", errors.New("it lies where no manifest does: want manifests/HOST/NAMESPACE/NAME/TAG")
	}
	return shortName(rel), nil
}

func good(parts []string) bool {
	return hostForm().MatchString(parts[0]) && nameForm().MatchString(parts[1]) && nameForm().MatchString(parts[2]) && nameForm().MatchString(parts[3])
}

func shortName(rel string) string {
	parts := strings.Split(filepath.ToSlash(rel), "/")
	name := parts[2] + ":" + parts[3]
	switch {
	case parts[0] != usualHost:
		return parts[0] + "/" + parts[1] + "/" + name
	case parts[1] != usualNamespace:
		return parts[1] + "/" + name
	}
	return name
}

// manifestOf returns the path of a name's manifest, below manifests/.
func manifestOf(name string) (string, bool) {
	parts := strings.Split(name, "/")
	base, tag, tagged := strings.Cut(parts[len(parts)-1], ":")
	if !tagged {
		tag = "latest"
	}
	parts = append(parts[:len(parts)-1], base, tag)
	switch len(parts) {
	case 2:
		parts = append([]string{usualHost, usualNamespace}, parts...)
	case 3:
		parts = append([]string{usualHost}, parts...)
	}
	return filepath.Join(parts...), len(parts) == 4 && good(parts)
}

type manifest struct {
	Config *layer  `json:"config"`
	Layers []layer `json:"layers"`
}

type layer struct {
	MediaType string    `json:"mediaType"`
	Digest    string    `json:"digest"`
	Size      api.Bytes `json:"size"`
}

const (
	kindModel     = "application/vnd.ollama.image.model"
	kindAdapter   = "application/vnd.ollama.image.adapter"
	kindProjector = "application/vnd.ollama.image.projector"
	kindTemplate  = "application/vnd.ollama.image.template"
	kindSystem    = "application/vnd.ollama.image.system"
	kindMessages  = "application/vnd.ollama.image.messages"
	kindParams    = "application/vnd.ollama.image.params"
)

var digestForm = lazyregexp.New(`^sha256:[0-9a-f]{64}$`)

func (s *Store) read(name, path string) (Model, error) {
	m := Model{Name: name, store: s.Dir}
	f, err := os.Open(path)
	if err != nil {
		return m, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return m, cmp.Or(err, errors.New("its manifest is no file"))
	}
	raw, err := io.ReadAll(io.LimitReader(f, mostManifest))
	if err != nil {
		return m, err
	}
	var has manifest
	if err := json.Unmarshal(raw, &has); err != nil {
		return m, fmt.Errorf("its manifest can't be read: %w", api.Explain(err))
	}
	if has.Config == nil || len(has.Layers) == 0 {
		return m, errors.New("its manifest names no layers")
	}
	kinds := map[string]int{}
	for _, l := range has.Layers {
		if !digestForm().MatchString(l.Digest) {
			return m, fmt.Errorf("its manifest has the digest %.80q, which is no sha256", l.Digest)
		}
		blob := filepath.Join(s.Dir, "blobs", strings.Replace(l.Digest, ":", "-", 1))
		info, err := os.Stat(blob)
		switch {
		case err != nil:
			return m, fmt.Errorf("its blob %.19s… is not there: ollama pull %s mends it", l.Digest, name)
		case l.Size > 0 && api.Bytes(info.Size()) != l.Size:
			return m, fmt.Errorf("its blob %.19s… has %d bytes, and should have %d: ollama pull %s mends it", l.Digest, info.Size(), l.Size, name)
		}
		m.Size += api.Bytes(info.Size())
		if kinds[l.MediaType]++; l.MediaType == kindModel && m.file == "" {
			m.file = blob
		}
	}
	if m.file == "" {
		return m, errors.New("its manifest names no weights: it runs elsewhere, or is no model")
	}
	m.Ignores, m.Engine = fits(m.file, kinds)
	return m, nil
}

// fits returns what our engine ignores of a model, or why it can't serve it.
func fits(file string, kinds map[string]int) (ignores string, why error) {
	switch {
	case kinds[kindModel] > 1:
		return "", fmt.Errorf("its weights are %d files", kinds[kindModel])
	case kinds[kindAdapter] > 0:
		return "", errors.New("it has an adapter baked in (declare it as one of a function's)")
	case kinds[kindProjector] > 0:
		return "", errors.New("it reads images")
	case kinds[kindSystem]+kinds[kindMessages] > 0:
		return "", errors.New("its Modelfile has a system message or examples")
	}
	template, err := serve.Check(file)
	if err != nil {
		return "", reason(err, file)
	}
	if !template && kinds[kindTemplate] > 0 {
		return "", errors.New("its chat template is Ollama's own, and its file has none")
	}
	if kinds[kindParams] > 0 {
		ignores = "its Modelfile's parameters: clients set their own"
	}
	return ignores, nil
}

// Function declares a function that serves a model in place: on our engine if it can and no other runtime has a GPU,
// else on Ollama, if installed. The error says why neither can.
func (m Model) Function(origin string, gpu func() GPU) (api.Function, error) {
	if m.Engine == nil && !(gpu != nil && gpu().Is && installed("ollama")) {
		f, err := config.ForModel(functionName(m.Name)+"="+m.file, origin)
		f.Aliases = alias(m.Name, f)
		return onGPU(f, gpu), err
	}
	if !installed("ollama") {
		return api.Function{}, fmt.Errorf("our engine can't serve it: %w; and Ollama is not installed here", m.Engine)
	}
	f, err := config.ForModel(functionName(m.Name)+"=ollama://"+m.Name, origin)
	f.Runtime.Model = m.Name // with ollama:// it would be fetched
	f.Runtime.Env = append(f.Runtime.Env, "OLLAMA_MODELS="+m.store)
	f.Memory.Devices = devices(gpu)
	f.Aliases = alias(m.Name, f)
	return f, err
}

// alias returns the names that Ollama's clients use, in addition to the function's own.
func alias(name string, f api.Function) []api.ModelName {
	names := []api.ModelName{api.ModelName(name)}
	if short, is := strings.CutSuffix(name, ":latest"); is && short != f.Name.Name() {
		names = append(names, api.ModelName(short))
	}
	return slices.DeleteFunc(names, func(n api.ModelName) bool { return string(n) == f.Name.Name() })
}

// functionName: qwen2.5:0.5b is qwen2-5-0-5b, chat:latest is chat.
func functionName(model string) string {
	return cmp.Or(config.NameOf(strings.TrimSuffix(model, ":latest")), "m")
}

// Functions declares a function for each model that can be served here.
func (s *Store) Functions(gpu func() GPU) (functions []api.Function, left []Skipped) {
	models, left := s.Models()
	all := found{left: left}
	for _, m := range models {
		f, err := m.Function("Ollama's store "+s.Dir, gpu)
		all.add(m.Name, f, err)
	}
	return all.functions, all.left
}

// Attached declares functions for models that an Ollama at e goes on serving.
func Attached(models []string, e api.Endpoint, gpu GPU) (functions []api.Function, left []Skipped) {
	var all found
	for _, name := range models {
		f, err := config.ForModel("m=ollama://"+name, string(e))
		f.Runtime.Model, f.Runtime.Endpoint, f.Memory.Devices = name, e, gpu.Devices
		if err == nil {
			f, err = config.Named(f, name)
		}
		all.add(printable(name), f, err)
	}
	return all.functions, all.left
}
