package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/catalog"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/engine/pico"
)

// sources say where functions are declared; of two with one function, the first wins.
type sources struct {
	Functions []api.Function
	Files     []string `flag:"file,f" help:"manifest of functions, or a <folder> of them; - is standard input (repeatable)"`
	Models    []string `flag:"model" help:"<model> to serve: a GGUF file, hf.co/ORG/NAME, ollama://NAME, a URL, or pico; NAME=MODEL gives it a name (repeatable)"`
	Commands  []string `flag:"command" help:"<NAME=COMMAND> of a model server with the OpenAI API: it listens on $(PORT) or the Unix socket $(SOCKET), and has one GPU where there is one (repeatable)"`
	// Kept is the folder of kept functions; empty or missing: none.
	Kept       string
	ModelsDirs []string `flag:"models-dir" help:"<folder> of GGUF files: each below it is a function, named after its file (repeatable)"`
	Ollama     *catalog.Store
	// GPU; nil: model files run on the processor.
	GPU func() catalog.GPU
	// MayBeNone allows having no function; else pico is served.
	MayBeNone bool
}

type declaredSet struct {
	Functions []api.Function
	// Left are files that no model server takes, and taken names.
	Left []catalog.Skipped
	// Bad are unreadable manifests.
	Bad []catalog.Skipped
	// Hints are things that could be served too, and each --model that can't be.
	Hints []string
	// Read are things that were read without being named.
	Read []string
}

// reader reads a server's declarations. An unreadable manifest keeps its functions; those declared by hand (rouse apply) are left alone. It
// is not safe for concurrent use.
type reader struct {
	from  sources
	last  map[string][]api.Function // by file, as last read
	stdin []api.Function            // it can be read only once
	pico  bool                      // nothing was declared at first
}

func newReader(from sources) *reader { return &reader{from: from, last: map[string][]api.Function{}} }

// Read fails for what concerns the whole, such as a name that two functions want; unreadable manifests are in Bad.
func (r *reader) Read() (declaredSet, error) {
	first := len(r.last) == 0 && !r.pico
	b := &builder{r: r, taken: map[api.FunctionName]string{}, names: map[api.ModelName]string{}}
	for _, f := range r.from.Functions {
		b.declare(f)
	}
	for _, path := range r.from.Files {
		if err := b.manifests(path); err != nil {
			return b.set, err
		}
	}
	for _, ref := range r.from.Models {
		if err := b.model(ref); err != nil {
			return b.set, err
		}
	}
	for _, named := range r.from.Commands {
		f, err := catalog.Command(named, "--command", r.from.GPU)
		if err != nil {
			return b.set, err
		}
		if words := strings.Join(f.Runtime.Command, " "); !strings.Contains(words, "$(PORT)") && !strings.Contains(words, "$(SOCKET)") {
			b.set.Hints = append(b.set.Hints, fmt.Sprintf("%s has no $(PORT) in its command: it learns its port from the variable PORT of its environment alone", f.Name.Short()))
		}
		b.declare(f)
	}
	if err := b.kept(); err != nil {
		return b.set, err
	}
	for _, dir := range r.from.ModelsDirs {
		functions, left, err := catalog.Folder(dir, r.from.GPU)
		if err != nil {
			return b.set, err
		}
		b.found(functions, left, count(len(functions), "model")+" below "+shortPath(dir))
	}
	if r.pico = r.pico || first && len(b.set.Functions) == 0 && len(b.set.Bad) == 0 && !r.from.MayBeNone; r.pico {
		f, err := config.ForModel(pico.Name, "built in")
		if err != nil {
			return b.set, err
		}
		b.found([]api.Function{f}, nil, "")
		if in := slices.Concat(r.from.Files, r.from.ModelsDirs); first && len(in) > 0 {
			b.set.Hints = append(b.set.Hints, "nothing is declared in "+strings.Join(in, ", ")+": pico is served, the model that is built in")
		}
	}
	if s := r.from.Ollama; s != nil {
		functions, left := s.Functions(r.from.GPU)
		b.found(functions, left, count(len(functions), "model")+" of Ollama's store, "+shortPath(s.Dir))
	}
	return b.set, config.CheckUnique(b.set.Functions)
}

type builder struct {
	r     *reader
	set   declaredSet
	taken map[api.FunctionName]string // where it was declared
	names map[api.ModelName]string    // in the default namespace, with their function
}

func (b *builder) declare(f api.Function) {
	b.set.Functions = append(b.set.Functions, f)
	b.taken[f.Name] = f.Origin
	for _, n := range f.Names() {
		b.names[n] = f.Name.Short()
	}
}

func (b *builder) manifests(path string) error {
	if path == "-" {
		if b.r.stdin == nil {
			functions, err := config.Load(path)
			if err != nil {
				return err
			}
			b.r.stdin = functions
		}
		for _, f := range b.r.stdin {
			b.declare(f)
		}
		return nil
	}
	files, err := manifestFiles(path)
	if err != nil {
		return err
	}
	for _, file := range files {
		for _, f := range b.load(file) {
			b.declare(f)
		}
	}
	return nil
}

func (b *builder) load(file string) []api.Function {
	functions, err := config.Load(file)
	if _, was := b.r.last[file]; was && errors.Is(err, fs.ErrNotExist) {
		b.r.last[file] = nil // deleted
		return nil
	}
	if err != nil {
		b.set.Bad = append(b.set.Bad, catalog.Skipped{What: file, Why: err})
		return b.r.last[file]
	}
	b.r.last[file] = functions
	return functions
}

func isManifest(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// manifestFiles returns the manifests in a folder, by name, or the file itself.
func manifestFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	if err != nil || !info.IsDir() { // reported when it is read
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("read the folder of manifests: %w", err)
	}
	var files []string
	for _, e := range entries {
		if isManifest(e.Name()) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	slices.Sort(files)
	return files, nil
}

func (b *builder) model(ref string) error {
	if ext := filepath.Ext(ref); ext == ".yaml" || ext == ".yml" {
		return fmt.Errorf("--model %s: a manifest is given with -f", ref)
	}
	f, err := catalog.Resolve(ref, "--model", cmp.Or(b.r.from.Ollama, catalog.StoreOf(os.Getenv)), b.r.from.GPU)
	if err != nil {
		return err
	}
	name, _ := config.CutName(ref)
	if _, quant, of := strings.Cut(f.Runtime.Model, "?quant="); of && quant != "default" && name == "" && b.taken[f.Name] != "" {
		if f, err = config.Named(f, f.Name.Name()+"-"+quant); err != nil {
			return err
		}
	}
	if _, taken := b.taken[f.Name]; taken {
		return fmt.Errorf("--model %s: another function is called %s already: name this one with --model NAME=%s", ref, f.Name.Name(), strings.TrimPrefix(ref, f.Name.Name()+"="))
	}
	if why := catalog.Unusable(f); why != nil { // it may be fixed before a request comes
		b.set.Hints = append(b.set.Hints, fmt.Sprintf("%s can't be served as it is: %v", f.Name.Short(), why))
	}
	b.declare(f)
	return nil
}

// kept leaves functions of the command line alone.
func (b *builder) kept() error {
	dir := b.r.from.Kept
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil
	}
	files, err := manifestFiles(dir)
	if err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(file string) bool { return filepath.Base(file) == keysFileName })
	n := 0
	for _, file := range files {
		for _, f := range b.load(file) {
			if other, is := b.taken[f.Name]; is && !slices.ContainsFunc(files, func(file string) bool { return file == other }) {
				b.set.Left = append(b.set.Left, catalog.Skipped{What: f.Name.Short() + " in " + shortPath(file), Why: fmt.Errorf("it is declared in %s", other)})
				continue
			}
			b.declare(f)
			n++
		}
	}
	if len(files) > 0 {
		b.set.Read = append(b.set.Read, count(n, "function")+" of "+shortPath(dir))
	}
	return nil
}

// found leaves taken names to their owners.
func (b *builder) found(functions []api.Function, left []catalog.Skipped, read string) {
	for _, f := range functions {
		other, is := b.taken[f.Name]
		if !is {
			other, is = b.names[f.Model]
		}
		if is {
			left = append(left, catalog.Skipped{What: f.Name.Short() + " (" + f.Origin + ")", Why: fmt.Errorf("another function has the name (%s)", other)})
			continue
		}
		f.Aliases = slices.DeleteFunc(slices.Clone(f.Aliases), func(n api.ModelName) bool { _, is := b.names[n]; return is })
		b.declare(f)
	}
	b.set.Left = append(b.set.Left, left...)
	if read != "" {
		b.set.Read = append(b.set.Read, read)
	}
}
