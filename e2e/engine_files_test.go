package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// generate writes a model of a public model's layout into a folder.
func generate(t *testing.T, dir, layout string) string {
	t.Helper()
	path := filepath.Join(dir, layout+".gguf")
	if out, err := exec.Command(filepath.Join(bin, "tinygguf"), "-layout", layout, "-o", path).CombinedOutput(); err != nil {
		t.Fatalf("tinygguf: %v\n%s", err, out)
	}
	return path
}

// tiles are the packed models in the cache of a place by their names, with what tells a file from another that
// takes its name. The time of change does not: it says when the file was used last.
func (p *place) tiles(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(p.runtime, ".cache", "rouse", "tiles", "*.tiles"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.Base(f)] = fmt.Sprintf("inode %d, %d bytes", info.Sys().(*syscall.Stat_t).Ino, info.Size())
	}
	return found
}

// completion asks `rouse up` for a greedy continuation, which random weights make long and certain.
func (p *place) completion(ctx context.Context, model string) (string, error) {
	body := fmt.Sprintf(`{"model":%q,"prompt":"the sea and the sky, and 12 boats","max_tokens":24,"temperature":0,"ignore_eos":true,"logprobs":2}`, model)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.server.url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var a struct {
		Choices json.RawMessage
		Error   json.RawMessage
		Usage   struct {
			Tokens int `json:"completion_tokens"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || a.Error != nil || a.Usage.Tokens != 24 {
		return "", fmt.Errorf("status %d, %d tokens, error %s: %w", resp.StatusCode, a.Usage.Tokens, a.Error, err)
	}
	return string(a.Choices), nil
}

// TestEngineFiles serves files of public models' layouts: they answer, sleep,
// wake and answer the same, and what was packed is packed once.
func TestEngineFiles(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{"qwen3", "llama3"} {
		t.Run(layout, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
			defer cancel()
			file := generate(t, t.TempDir(), layout)
			p := newServer(t, "--model", file)
			want, err := p.completion(ctx, layout)
			if err != nil {
				t.Fatal(err)
			}
			packed := p.tiles(t)
			if len(packed) != 1 {
				t.Errorf("the packed models are %v, want one", packed)
			}
			for _, level := range []string{"1", "2"} {
				if _, err := p.rouse("sleep", layout, "--level", level); err != nil {
					t.Fatal(err)
				}
				if i, err := p.instance(layout); err != nil || i.State != "asleep" {
					t.Errorf("level %s: %+v, %v; want it asleep", level, i, err)
				}
				if got, err := p.completion(ctx, layout); got != want {
					t.Errorf("after a sleep of level %s: %s, %v; want %s", level, got, err, want)
				}
			}
			if _, err := p.rouse("sleep", layout, "--unload"); err != nil {
				t.Fatal(err)
			}
			if got, err := p.completion(ctx, layout); got != want {
				t.Errorf("after a second start: %s, %v; want %s", got, err, want)
			}
			if again := p.tiles(t); fmt.Sprint(again) != fmt.Sprint(packed) {
				t.Errorf("after a second start the packed models are %v, want the first one's %v", again, packed)
			}
		})
	}
}

// TestEngineReadOnlyCache has no folder to keep the packed model in: it is packed in memory.
func TestEngineReadOnlyCache(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	dir := t.TempDir()
	file := generate(t, dir, "llama3")
	// Root may write into any folder, but into none that is a file.
	blocked := filepath.Join(dir, "blocked")
	if err := os.WriteFile(blocked, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	body := `{"model":"m","prompt":"the sea","max_tokens":8,"temperature":0,"ignore_eos":true}`
	var texts []string
	for _, cache := range []string{filepath.Join(dir, "free"), blocked} {
		e := newEngine(t, "XDG_CACHE_HOME="+cache, "--model", file, "--name", "m")
		text, _, err := e.stream(ctx, strings.Replace(body, "{", `{"stream":true,`, 1), func() {})
		if err != nil {
			t.Error(err)
		}
		texts = append(texts, text)
		if told := strings.Contains(e.log(), "memory"); told != (cache == blocked) {
			t.Errorf("XDG_CACHE_HOME=%s: the log says that memory is used: %v:\n%s", cache, told, e.log())
		}
		e.stop(t)
	}
	if texts[0] != texts[1] || texts[0] == "" {
		t.Errorf("without a cache the text is %q, with one %q", texts[1], texts[0])
	}
}

// TestEngineTruncated cuts files off while they are mapped. It is an error for
// those who ask, and the server lives on: it works again as soon as it can.
func TestEngineTruncated(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"inside", "process"} {
		t.Run(kind, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
			defer cancel()
			file := generate(t, t.TempDir(), "llama3")
			whole, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			mend := func() {
				if err := os.WriteFile(file, whole, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			e := newEngine(t, "--model", file, "--name", "m", "--worker", kind)
			const body = `{"model":"m","prompt":"the sea","max_tokens":8,"temperature":0,"ignore_eos":true,"logprobs":1}`
			want := e.says(ctx, t, "/v1/completions", body, 200, "")

			// 1. The packed model is cut off: it is made again.
			e.cutTiles(t)
			e.says(ctx, t, "/v1/completions", strings.Replace(body, "the sea", "a lake", 1), 500, "was truncated")
			e.comes(ctx, t, body, 200, want)
			// 2. The model itself is cut off while it sleeps: no wake, until it is back.
			e.says(ctx, t, "/sleep?level=2", "", 200, "")
			truncate(t, file)
			e.says(ctx, t, "/wake_up", "", 500, file)
			mend()
			e.says(ctx, t, "/wake_up", "", 200, "")
			if got := e.says(ctx, t, "/v1/completions", body, 200, ""); got != want {
				t.Errorf("awake again: %s, want %s", got, want)
			}
			// 3. Both are cut off: an error that names the file, and an answer as soon as it is back.
			truncate(t, file)
			e.cutTiles(t)
			e.comes(ctx, t, body, 500, file)
			mend()
			e.comes(ctx, t, body, 200, want)
		})
	}
}

// cutTiles cuts off all packed models of an engine.
func (e *engineServer) cutTiles(t *testing.T) {
	t.Helper()
	for name := range e.place.tiles(t) {
		path := filepath.Join(e.place.runtime, ".cache", "rouse", "tiles", name)
		if err := os.Chmod(path, 0o600); err != nil { // nobody may write it otherwise
			t.Fatal(err)
		}
		truncate(t, path)
	}
}

// says posts a body, wants a status and words of the answer, and returns the answer's choices and what follows them.
func (e *engineServer) says(ctx context.Context, t *testing.T, path, body string, status int, words string) string {
	t.Helper()
	got, raw, err := e.post(ctx, path, body)
	if err != nil || got != status || !bytes.Contains(raw, []byte(words)) {
		t.Fatalf("%s: status %d, %s, %v; want %d and %q", path, got, raw, err, status, words)
	}
	_, choices, _ := strings.Cut(string(raw), `"choices":`)
	choices, _, _ = strings.Cut(choices, `"usage":`) // which tells of the prefix cache
	return choices
}

// comes asks for a completion until the answer has a status and words.
func (e *engineServer) comes(ctx context.Context, t *testing.T, body string, status int, words string) {
	t.Helper()
	err := retry(func() error {
		got, raw, err := e.post(ctx, "/v1/completions", body)
		if err == nil && (got != status || !bytes.Contains(raw, []byte(words))) {
			err = fmt.Errorf("status %d, %s; want %d and %s", got, raw, status, words)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// truncate cuts a file off at its middle.
func truncate(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()/2)
	}
	if err != nil {
		t.Fatal(err)
	}
}
