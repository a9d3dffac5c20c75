package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/engine/pico"
)

// patience bounds every wait.
const patience = 30 * time.Second

func manifest(name, extra string) string {
	return "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: " + name + "}\nspec:\n  template:\n    metadata:\n      annotations: {rouse.dev/model: pico" + extra + "}\n    spec:\n      containers: [{image: a}]\n"
}

// put writes a file as an editor does.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		t.Fatal(err)
	}
}

func names(s declaredSet) (all []string) {
	for _, f := range s.Functions {
		all = append(all, f.Name.Short())
	}
	return all
}

// TestRead: what was named on the command line goes before what was kept, and that before what was found.
func TestRead(t *testing.T) {
	dir, kept, models := t.TempDir(), t.TempDir(), t.TempDir()
	put(t, filepath.Join(dir, "b.yaml"), manifest("chat", "")+"---\n"+manifest("more", ""))
	put(t, filepath.Join(dir, "a.json"), `{"apiVersion":"serving.knative.dev/v1","kind":"Service","metadata":{"name":"first"},"spec":{"template":{"metadata":{"annotations":{"rouse.dev/model":"pico"}},"spec":{"containers":[{"image":"a"}]}}}}`)
	put(t, filepath.Join(dir, ".hidden.yaml"), "no manifest")
	put(t, filepath.Join(dir, "notes.txt"), "no manifest")
	put(t, filepath.Join(kept, "chat.yaml"), manifest("chat", ", rouse.dev/sleep-after: 5s"))
	put(t, filepath.Join(kept, "kept.yaml"), manifest("kept", ""))
	put(t, filepath.Join(kept, "keys.yaml"), "keys: []\n") // of clients
	for _, name := range []string{"kept.gguf", "found.gguf"} {
		if err := os.WriteFile(filepath.Join(models, name), pico.GGUF(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := newReader(sources{Files: []string{dir}, Models: []string{"pico"}, Kept: kept, ModelsDirs: []string{models}}).Read()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(s), []string{"first", "chat", "more", "pico", "kept", "found"}; !slices.Equal(got, want) {
		t.Errorf("functions are %q, want %q", got, want)
	}
	if len(s.Left) != 2 || len(s.Read) != 2 || len(s.Bad) != 0 {
		t.Errorf("left out %v, read %v, bad %v", s.Left, s.Read, s.Bad)
	}
	for from, want := range map[*sources]string{
		{}:                               "pico",
		{Kept: filepath.Join(dir, "no")}: "pico",
		{MayBeNone: true}:                "",
		{Kept: kept}:                     "chat kept",
	} {
		if s, err := newReader(*from).Read(); err != nil || strings.Join(names(s), " ") != want {
			t.Errorf("%+v declares %q, %v; want %q", from, names(s), err, want)
		}
	}
	empty := t.TempDir()
	if s, err := newReader(sources{Files: []string{empty}}).Read(); err != nil || len(s.Hints) != 1 || !strings.Contains(s.Hints[0], "nothing is declared in "+empty) {
		t.Errorf("an empty folder: %v, %v", s.Hints, err)
	}
	for want, from := range map[string]sources{
		"a manifest is given with -f": {Models: []string{"functions.yaml"}},
		"is called pico already":      {Models: []string{"pico", "pico"}},
		"read the folder of models":   {ModelsDirs: []string{filepath.Join(dir, "no")}},
		"declared twice":              {Files: []string{filepath.Join(dir, "b.yaml"), filepath.Join(dir, "b.yaml")}},
	} {
		if _, err := newReader(from).Read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	s, err = newReader(sources{Files: []string{filepath.Join(dir, "no.yaml")}}).Read()
	if err != nil || len(s.Bad) != 1 || !strings.Contains(s.Bad[0].Why.Error(), "no such file") {
		t.Errorf("a file that is not there: %v, %v", s.Bad, err)
	}
}

// fake is a server that notes what is declared.
type fake struct {
	mu      sync.Mutex
	serves  map[api.FunctionName]api.Function
	did     []string
	changed chan struct{} // has an element after a change; one place, so that senders never block
	refuse  string
}

func (s *fake) note(what string) {
	s.did = append(s.did, what)
	s.ring()
}

func (s *fake) ring() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *fake) Declare(_ context.Context, f api.Function) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Name.Name() == s.refuse {
		s.note("refuse " + f.Name.Short())
		return "", errors.New("no room")
	}
	_, was := s.serves[f.Name]
	s.serves[f.Name] = f
	s.note(fmt.Sprintf("declare %s %s", f.Name.Short(), f.SleepAfter))
	if was {
		return "configured", nil
	}
	return "created", nil
}

func (s *fake) Withdraw(_ context.Context, name api.FunctionName, origin string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serves[name].Origin == origin {
		delete(s.serves, name)
		s.note("withdraw " + name.Short())
	}
	return nil
}

// lines is a log that rings too.
type lines struct {
	s *fake
	b bytes.Buffer // guarded by s.mu
}

func (l *lines) Write(p []byte) (int, error) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	defer l.s.ring()
	return l.b.Write(p)
}

// until waits until ok, which is called with s.mu held.
func (s *fake) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		good, did := ok(), fmt.Sprint(s.did)
		s.mu.Unlock()
		if good {
			return
		}
		select {
		case <-s.changed:
		case <-deadline:
			t.Fatalf("%s: it did not happen; done is %s", what, did)
		}
	}
}

// TestWatch changes what is declared while a server serves it.
func TestWatch(t *testing.T) {
	dir, kept, models := t.TempDir(), filepath.Join(t.TempDir(), "kept"), t.TempDir()
	file := filepath.Join(dir, "functions.yaml")
	put(t, file, manifest("chat", "")+"---\n"+manifest("code", ""))
	r := newReader(sources{Files: []string{file}, Kept: kept, ModelsDirs: []string{models}, MayBeNone: true})
	now, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	s := &fake{serves: map[api.FunctionName]api.Function{}, changed: make(chan struct{}, 1), refuse: "refused"}
	for _, f := range now.Functions {
		s.serves[f.Name] = f
	}
	log := &lines{s: s}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Watch(ctx, now, s, slog.New(slog.NewTextHandler(log, nil))) }()
	did := func(want ...string) func() bool {
		return func() bool { return slices.Equal(s.did, want) }
	}
	said := func(want string, times int) func() bool {
		return func() bool { return strings.Count(log.b.String(), want) == times }
	}

	// One of two is changed: the other one is not touched.
	put(t, file, manifest("chat", ", rouse.dev/sleep-after: 5s")+"---\n"+manifest("code", ""))
	s.until(t, "a change", did("declare chat 5s"))

	// Half of a file changes nothing, and is said once, however often it is read.
	put(t, file, manifest("chat", ", rouse.dev/sleep-after: 7s")+"---\napiVersion: serving.knative.dev/v1\nkind: Serv")
	s.until(t, "a report", said("a manifest can't be read", 1))
	put(t, filepath.Join(kept, "new.yaml"), manifest("new", ""))
	s.until(t, "a new file", did("declare chat 5s", "declare new 1m0s"))
	s.until(t, "said once", said("a manifest can't be read", 1))

	// It is mended.
	put(t, file, manifest("chat", ", rouse.dev/sleep-after: 7s")+"---\n"+manifest("code", ""))
	s.until(t, "mended", did("declare chat 5s", "declare new 1m0s", "declare chat 7s"))

	// A function that the server refuses stops no other.
	put(t, filepath.Join(kept, "refused.yaml"), manifest("refused", ""))
	s.until(t, "refused", said("no room", 1))

	// Models come and go, in new folders too.
	model := filepath.Join(models, "more", "small.gguf")
	put(t, model, string(pico.GGUF()))
	s.until(t, "a model", func() bool { _, is := s.serves["default/small"]; return is })
	if err := os.Remove(model); err != nil {
		t.Fatal(err)
	}
	s.until(t, "no model", func() bool { _, is := s.serves["default/small"]; return !is })

	// A function that somebody has declared by hand outlives its file; the other one of the file does not.
	s.mu.Lock()
	byHand := s.serves["default/code"]
	byHand.Origin = "by hand"
	s.serves[byHand.Name] = byHand
	s.mu.Unlock()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.until(t, "gone", func() bool { _, is := s.serves["default/chat"]; return !is })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, is := s.serves["default/code"]; !is { // Watch has ended
		t.Error("what was declared by hand is withdrawn")
	}
}

// TestQuants: two quantizations of one repository are two functions, under names of their own.
func TestQuants(t *testing.T) {
	models := func(refs ...string) ([]string, error) {
		s, err := newReader(sources{Models: refs}).Read()
		return names(s), err
	}
	if got, err := models("hf.co/org/M-GGUF", "hf.co/org/M-GGUF:Q8_0", "hf.co/org/M-GGUF:UD-Q4_K_XL"); err != nil || !slices.Equal(got, []string{"m-gguf", "m-gguf-q8-0", "m-gguf-ud-q4-k-xl"}) {
		t.Errorf("got %q, %v", got, err)
	}
	for _, again := range []string{"hf.co/org/M-GGUF", "m-gguf=hf.co/org/M-GGUF:Q8_0"} {
		if _, err := models("hf.co/org/M-GGUF", again); err == nil || !strings.Contains(err.Error(), "name this one with --model NAME=hf.co/org/M-GGUF") {
			t.Errorf("%s: got %v", again, err)
		}
	}
}

// TestUnusable: a model of --model that the engine can't serve is said at the start, for what can be mended is declared all the same.
func TestUnusable(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.gguf"), filepath.Join(dir, "bad.gguf")
	put(t, good, string(pico.GGUF()))
	put(t, bad, strings.Replace(string(pico.GGUF()), "general.architecture\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00llama", "general.architecture\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00mamba", 1))
	s, err := newReader(sources{Models: []string{good, bad}}).Read()
	if err != nil || !slices.Equal(names(s), []string{"good", "bad"}) || len(s.Hints) != 1 || !strings.Contains(s.Hints[0], `bad can't be served as it is: read model metadata: architecture "mamba" is not supported`) {
		t.Errorf("got %v, %q, %v", names(s), s.Hints, err)
	}
}

// TestCommandWithoutPort: a command that can't be told its port in words is named at the start.
func TestCommandWithoutPort(t *testing.T) {
	s, err := newReader(sources{Commands: []string{"a=serve", "b=serve --port $(PORT)", "c=serve $(SOCKET)"}}).Read()
	if err != nil || len(s.Hints) != 1 || !strings.Contains(s.Hints[0], "a has no $(PORT) in its command") {
		t.Errorf("got %q, %v", s.Hints, err)
	}
}

// TestWatchLinks: a change of what a link names is seen, and that it names something else, wherever the link lies.
func TestWatchLinks(t *testing.T) {
	home, one, two := t.TempDir(), t.TempDir(), t.TempDir()
	link := func(to, name string) {
		t.Helper()
		from := filepath.Join(home, name)
		if err := errors.Join(os.Symlink(to, from+"~"), os.Rename(from+"~", from)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(one, "file", "real.yaml"), manifest("file", ""))
	put(t, filepath.Join(one, "folder", "a.yaml"), manifest("folder", ""))
	put(t, filepath.Join(two, "folder", "a.yaml"), manifest("folder", ", rouse.dev/sleep-after: 9s"))
	put(t, filepath.Join(one, "models", "x", "m1.gguf"), string(pico.GGUF()))
	link(filepath.Join(one, "file", "real.yaml"), "second")
	link("second", "file.yaml")
	link(one, "now")
	link(filepath.Join("now", "folder"), "folder")
	link(filepath.Join(one, "models"), "models")
	r := newReader(sources{Files: []string{filepath.Join(home, "file.yaml"), filepath.Join(home, "folder")}, ModelsDirs: []string{filepath.Join(home, "models")}})
	now, err := r.Read()
	if err != nil || !slices.Equal(names(now), []string{"file", "folder", "m1"}) {
		t.Fatalf("got %v, %v", names(now), err)
	}
	s := &fake{serves: map[api.FunctionName]api.Function{}, changed: make(chan struct{}, 1)}
	for _, f := range now.Functions {
		s.serves[f.Name] = f
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Watch(ctx, now, s, slog.New(slog.NewTextHandler(&lines{s: s}, nil))) }()
	sleeps := func(name string, after time.Duration) func() bool {
		return func() bool { return s.serves[api.FunctionName("default/"+name)].SleepAfter == after }
	}
	served := func(name string, want bool) func() bool {
		return func() bool { _, is := s.serves[api.FunctionName("default/"+name)]; return is == want }
	}
	put(t, filepath.Join(one, "file", "real.yaml"), manifest("file", ", rouse.dev/sleep-after: 5s"))
	s.until(t, "the target is changed", sleeps("file", 5*time.Second))
	put(t, filepath.Join(one, "folder", "b.yaml"), manifest("more", ""))
	s.until(t, "a file in a linked folder", served("more", true))
	link(two, "now")
	s.until(t, "a link in the middle of a path leads elsewhere", sleeps("folder", 9*time.Second))
	s.until(t, "what was there is gone", served("more", false))
	put(t, filepath.Join(two, "folder", "a.yaml"), manifest("folder", ", rouse.dev/sleep-after: 8s"))
	s.until(t, "the new folder is watched", sleeps("folder", 8*time.Second))
	put(t, filepath.Join(one, "models", "m2.gguf"), string(pico.GGUF()))
	s.until(t, "a model in a linked folder", served("m2", true))
	put(t, filepath.Join(two, "elsewhere", "m3.gguf"), string(pico.GGUF()))
	link(filepath.Join(two, "elsewhere"), "models")
	s.until(t, "another folder of models", func() bool { return served("m3", true)() && served("m1", false)() && served("m2", false)() })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestKeep: what is kept is read again, only its user may read it, and a file in which something else stands is not touched.
func TestKeep(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	f, err := config.ForModel("chat=hf.co/org/name", "a test")
	if err != nil {
		t.Fatal(err)
	}
	m, err := config.ManifestOf(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := keepManifest(m); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(home, "rouse", "chat.yaml")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("it is kept as %v, %v", info, err)
	}
	s, err := newReader(sources{Kept: filepath.Dir(path)}).Read()
	if err != nil || len(s.Functions) != 1 || s.Functions[0].Runtime.Model != f.Runtime.Model {
		t.Errorf("kept are %v, %v", s.Functions, err)
	}
	if was, err := forgetKept(f.Name); !was || err != nil {
		t.Errorf("forgotten: %v, %v", was, err)
	}
	if was, err := forgetKept(f.Name); was || err != nil {
		t.Errorf("forgotten twice: %v, %v", was, err)
	}
	put(t, path, manifest("chat", "")+"---\n"+manifest("other", ""))
	if err := keepManifest(m); err == nil || !strings.Contains(err.Error(), "other functions") {
		t.Errorf("a file of two functions is replaced: %v", err)
	}
	if _, err := forgetKept(f.Name); err == nil {
		t.Error("a file of two functions is removed")
	}
	broken := manifest("chat", "") + "---\n" + manifest("other", "") + "  - here: [\n"
	put(t, path, broken)
	if err := keepManifest(m); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that can't be read is replaced: %v", err)
	}
	if _, err := forgetKept(f.Name); err == nil {
		t.Error("a file that can't be read is removed")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != broken {
		t.Errorf("the file has %q, %v", text, err)
	}
	if p, err := keptPath("default/keys"); err != nil || filepath.Base(p) != "default.keys.yaml" {
		t.Errorf("the path of a function that is called keys is %s, %v", p, err)
	}
	if p, err := keptPath("team/chat"); err != nil || filepath.Base(p) != "team.chat.yaml" {
		t.Errorf("the path is %s, %v", p, err)
	}
}
