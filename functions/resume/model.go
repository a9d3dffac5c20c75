package resume

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/internal/disk"
)

// Model describes the model that the function's vLLM serves.
type Model struct {
	// Name is the declared reference, and Path the one that vLLM was started with: a folder, or a name that vLLM resolves itself.
	Name, Path string
	Starts     uint64 // how often vLLM was started
	// Args and Env are the user's options.
	Args, Env []string
	// Attached says that somebody else starts vLLM, with unknown options.
	Attached bool
}

type model struct {
	mark  string
	most  int  // of an answer's tokens if the request sets no limit; 0: as many as fit
	usage bool // every stream ends with its usage
}

// parsers are options of vLLM that change the text between tokens and answer, or may hide such options.
var parsers = []string{"--reasoning-parser", "--reasoning-parser-plugin", "--enable-reasoning", "--reasoning-config", "--config", "--override-generation-config", "--logits-processors", "--return-tokens-as-token-ids"}

// model returns the model's properties that affect the request's tokens. why says why its stream can't be continued:
//
//  1. It is unknown how vLLM was started.
//  2. An option enables a parser of the answer, or may do so.
//  3. The model's own defaults have a penalty that counts only the answer.
//  4. The answer's length limit is unknown: the request has none, and only vLLM has the model's files.
//  5. The content of its adapter is unknown.
//
// begins says that the stream begins with this request.
func (t *Transport) model(a *asked, begins bool) (m model, why string) {
	known := t.cfg.Model()
	if known.Attached || known.Path == "" {
		return m, "somebody else has started this vLLM, and what it serves is not known" // 1
	}
	if name := firstOf(known.Args, parsers); name != "" {
		return m, "the option " + name + " of vLLM does not allow that" // 2
	}
	seen, err := t.look(known, begins)
	own := seen.own
	switch {
	case err != nil:
		return m, "the model's files have changed, or can't be read"
	case own.why != "":
		return m, own.why
	case own.Presence != 0 || own.Frequency != 0:
		return m, "the model's generation_config.json has a penalty that counts the answer alone" // 3
	case a.most < 0 && !own.read:
		return m, "how long the answer may be is not known: say max_tokens" // 4
	}
	m.most, m.usage = own.Most, firstOf(known.Args, []string{"--enable-force-include-usage"}) != ""
	h := sha256.New()
	env := slices.DeleteFunc(slices.Sorted(slices.Values(known.Env)), func(kv string) bool { return !strings.HasPrefix(kv, "VLLM_") })
	fmt.Fprintf(h, "%q %q %q %x\n", known.Name, known.Args, env, seen.content)
	if t.cfg.Adapter != nil && a.model != "" {
		if path, found := t.cfg.Adapter(a.model); found && (!filepath.IsAbs(path) || files(h, path) != nil) {
			return m, "what its adapter has in it is not known" // 5
		}
	}
	m.mark = hex.EncodeToString(h.Sum(nil)[:12])
	return m, ""
}

// firstOf returns the first option that is one of names, in either spelling.
func firstOf(args, names []string) string {
	for _, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		name, _, _ = strings.Cut(name, ".") // an option's part, as --reasoning-config.x
		if name = strings.ReplaceAll(name, "_", "-"); slices.Contains(names, name) {
			return name
		}
	}
	return ""
}

type generation struct {
	Most      int     `json:"max_new_tokens"`
	Presence  float64 `json:"presence_penalty"`
	Frequency float64 `json:"frequency_penalty"`
	read      bool
	why       string // the part that streams can't be continued with
}

// defaults reads the model's generation_config.json as vLLM does; folder is empty if unknown.
func defaults(args []string, folder string) (g generation) {
	switch option(args, "--generation-config") {
	case "vllm":
		return generation{read: true}
	case "", "auto":
	default:
		return generation{why: "the option --generation-config of vLLM does not allow that"}
	}
	if folder == "" {
		return g
	}
	raw, err := os.ReadFile(filepath.Join(folder, "generation_config.json"))
	switch {
	case os.IsNotExist(err):
		return generation{read: true}
	case err != nil || json.Unmarshal(raw, &g) != nil:
		return generation{why: "the model's generation_config.json can't be read"}
	}
	g.read = true
	return g
}

type seen struct {
	starts  uint64
	path    string
	stats   string // names, sizes and times, or the folder of a commit
	content []byte
	own     generation
	looked  time.Time
}

// patience is how long new streams rely on the last check of the files: a folder may be on a slow file system.
const patience = 10 * time.Second

// look identifies the model's files by their content, once per start. Files that are modified later are not those that vLLM computes
// with.
func (t *Transport) look(known Model, begins bool) (seen, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.seen
	same := s.starts == known.Starts && s.path == known.Path
	if same && begins && time.Since(s.looked) < patience {
		return *s, nil
	}
	folder := known.Path
	named := !filepath.IsAbs(known.Path)
	if named {
		folder = snapshot(known)
	}
	now, err := folder, error(nil)
	if !named {
		now, err = stats(folder)
	}
	if err != nil {
		return seen{}, err
	}
	if same {
		if s.stats != now {
			return seen{}, errors.New("the model's files have changed")
		}
		s.looked = time.Now()
		return *s, nil
	}
	h := sha256.New()
	if named {
		_, _ = io.WriteString(h, filepath.Base(folder)) // the commit, if it is known
	} else if err := files(h, folder); err != nil {
		return seen{}, err
	}
	t.seen = seen{starts: known.Starts, path: known.Path, stats: now, content: h.Sum(nil), own: defaults(known.Args, folder), looked: time.Now()}
	return t.seen, nil
}

func stats(root string) (string, error) {
	var b strings.Builder
	err := each(root, func(name, _ string, info fs.FileInfo) error {
		_, err := fmt.Fprintf(&b, "%q %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		return err
	})
	return b.String(), err
}

const (
	maxFiles = 4096
	edge     = 64 << 10 // of a file at each end
)

// files hashes names, sizes, and the bytes at both ends of files.
func files(h hash.Hash, root string) error {
	return each(root, func(name, path string, info fs.FileInfo) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		fmt.Fprintf(h, "%q %d\n", name, info.Size())
		if _, err := io.Copy(h, io.NewSectionReader(f, 0, edge)); err != nil {
			return err
		}
		_, err = io.Copy(h, io.NewSectionReader(f, max(edge, info.Size()-edge), edge))
		return err
	})
}

// each calls see with each file below root, in order. Links are followed.
func each(root string, see func(name, path string, info fs.FileInfo) error) error {
	n := 0
	return disk.Walk(root, func(path string, info fs.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		if n++; n > maxFiles {
			return fmt.Errorf("more than %d files", maxFiles)
		}
		name, _ := filepath.Rel(root, path)
		return see(name, path, info)
	})
}
