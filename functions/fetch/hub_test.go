package fetch_test

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/functions/fetch"
)

const commit = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00"

// hub makes an origin answer like a Hugging Face hub with one repository, org/name, whose large files (*.safetensors, *.gguf, *.bin) are
// LFS objects.
type hub struct {
	*origin
	files  map[string][]byte
	commit string
	token  string               // that it requires; "": none
	plain  bool                 // it does not support ?blobs=true, and lists by pages
	lie    func(map[string]any) // changes a file's metadata
	body   func(string) []byte  // changes a file's content
}

func newHub(t *testing.T) *hub {
	h := &hub{origin: newOrigin(t), commit: commit, files: map[string][]byte{
		"config.json":           []byte(`{"architectures":["LlamaForCausalLM"]}`),
		"model.safetensors":     random(60, 50_000),
		"pytorch_model.bin":     random(61, 50_000),
		"original/params.json":  []byte(`{}`),
		"sub/tokenizer.json":    []byte(`{"a":1}`),
		"sub/deep/weights.gguf": random(62, 30_000),
	}}
	h.origin.answer(h.serve)
	return h
}

func isLFS(name string) bool {
	return slices.Contains([]string{".safetensors", ".gguf", ".bin"}, filepath.Ext(name))
}

func gitID(b []byte) string {
	s := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...))
	return hex.EncodeToString(s[:])
}

func (h *hub) serve(w http.ResponseWriter, r *http.Request) bool {
	if h.token != "" && r.Header.Get("Authorization") != "Bearer "+h.token {
		w.Header().Set("X-Error-Code", "GatedRepo")
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	var names []string
	for n := range h.files {
		names = append(names, n)
	}
	slices.Sort(names)
	path := r.URL.EscapedPath()
	switch {
	case strings.HasPrefix(path, "/api/models/org/name/revision/"):
		rev := strings.TrimPrefix(path, "/api/models/org/name/revision/")
		if rev != "main" && rev != "refs%2Fpr%2F1" && rev != h.commit {
			w.Header().Set("X-Error-Code", "RevisionNotFound")
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		var siblings []map[string]any
		for _, n := range names {
			s := map[string]any{"rfilename": n}
			if !h.plain {
				s["size"], s["blobId"] = len(h.files[n]), gitID(h.files[n])
				if isLFS(n) {
					s["lfs"] = map[string]any{"sha256": sumOf(h.files[n]), "size": len(h.files[n]), "pointerSize": 130}
					s["blobId"] = gitID([]byte("pointer"))
				}
			}
			if h.lie != nil {
				h.lie(s)
			}
			siblings = append(siblings, s)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"id": "org/name", "sha": h.commit, "siblings": siblings})
	case path == "/api/models/org/name/tree/"+h.commit:
		h.page(w, r, names)
	case strings.HasPrefix(path, "/org/name/resolve/"+h.commit+"/"):
		name := strings.TrimPrefix(r.URL.Path, "/org/name/resolve/"+h.commit+"/")
		content := h.files[name]
		if h.body != nil {
			content = h.body(name)
		}
		h.set(r.URL.Path, served{content: content, etag: `"` + gitID(content) + `"`})
		h.mu.Lock()
		defer h.mu.Unlock()
		http.ServeContent(w, r, "", zero, strings.NewReader(string(content)))
	default:
		w.Header().Set("X-Error-Code", "RepoNotFound")
		w.WriteHeader(http.StatusUnauthorized)
	}
	return true
}

// page answers with two entries of the tree at a time.
func (h *hub) page(w http.ResponseWriter, r *http.Request, names []string) {
	var from int
	_, _ = fmt.Sscan(r.URL.Query().Get("cursor"), &from)
	if from+2 < len(names) {
		w.Header().Set("Link", fmt.Sprintf(`<%s%s?recursive=true&cursor=%d>; rel="next"`, h.URL, r.URL.Path, from+2))
	}
	entries := []map[string]any{{"type": "directory", "path": "sub", "oid": "x", "size": 0}}
	for _, n := range names[from:min(from+2, len(names))] {
		e := map[string]any{"type": "file", "path": n, "size": len(h.files[n]), "oid": gitID(h.files[n])}
		if isLFS(n) {
			e["lfs"] = map[string]any{"oid": sumOf(h.files[n]), "size": len(h.files[n])}
		}
		entries = append(entries, e)
	}
	_ = json.NewEncoder(w).Encode(entries)
}

func (h *hub) config(t *testing.T) fetch.Config {
	c := config(t, h.Server)
	c.Hub.Endpoint = h.URL
	c.Attempts = 2
	return c
}

func TestHubRepository(t *testing.T) {
	for _, plain := range []bool{false, true} {
		h := newHub(t)
		h.plain = plain
		c := open(t, h.config(t))
		m := fetched(t, c, "hf://org/name")
		want := []string{"config.json", "model.safetensors", "sub/deep/weights.gguf", "sub/tokenizer.json"}
		if got := names(t, m.Path); !slices.Equal(got, want) {
			t.Errorf("the model has %q, want %q: not the weights twice", got, want)
		}
		for _, n := range want {
			holds(t, filepath.Join(m.Path, n), h.files[n])
		}
		if m.GGUF != "" {
			t.Errorf("its one GGUF file is %s", m.GGUF)
		}
		files := func(s string) bool { return strings.Contains(s, "/resolve/") }
		before := len(h.seen())
		fetched(t, c, "hf://org/name")
		if more := h.seen()[before:]; slices.ContainsFunc(more, files) {
			t.Errorf("what has not changed is fetched anew: %q", more)
		}
		before = len(h.seen())
		fetched(t, c, "hf://org/name@"+commit)
		if more := h.seen()[before:]; slices.ContainsFunc(more, files) {
			t.Errorf("the commit is fetched anew: %q", more)
		}
		before = len(h.seen())
		fetched(t, c, "hf://org/name@"+commit)
		if more := h.seen()[before:]; len(more) != 0 {
			t.Errorf("a commit that is there is asked for: %q", more)
		}
	}
}

func TestHubPick(t *testing.T) {
	h := newHub(t)
	c := open(t, h.config(t))
	for ref, want := range map[string][]string{
		"hf://org/name/sub":                              {"deep/weights.gguf", "tokenizer.json"},
		"hf://org/name@refs/pr/1/sub/deep":               {"weights.gguf"},
		"hf://org/name?include=*.json":                   {"config.json", "original/params.json", "sub/tokenizer.json"},
		"hf://org/name?include=*.json,*.bin&exclude=*/*": {"config.json", "pytorch_model.bin"},
		"hf://org/name?exclude=original/,*.bin,*.[sg]*":  {"config.json", "sub/tokenizer.json"},
		"hf://org/name?include=sub/":                     {"sub/deep/weights.gguf", "sub/tokenizer.json"},
		"hf://org/name?include=c?nfig.json,sub/*.json":   {"config.json", "sub/tokenizer.json"},
	} {
		m := fetched(t, c, ref)
		if got := names(t, tree(c, m)); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", ref, got, want)
		}
	}
	m := fetched(t, c, "hf://org/name/sub/deep/weights.gguf#sha256="+sumOf(h.files["sub/deep/weights.gguf"]))
	if filepath.Base(m.Path) != "weights.gguf" || m.GGUF != m.Path {
		t.Errorf("the file is %+v", m)
	}
	for ref, want := range map[string]string{
		"hf://org/name?include=*.pdf":                     "leave none of the 6 files, such as config.json",
		"hf://org/name/nowhere":                           "has no file and no folder nowhere: it has config.json",
		"hf://org/name#sha256=" + sum64:                   "a checksum, which is of one file",
		"hf://org/name/config.json#sha256=" + sum64:       "expected the sha256 " + sum64,
		"hf://org/name/model.safetensors#sha256=" + sum64: "the source says that its sha256 is",
		"hf://org/name@v9":                                "has no revision v9",
		"hf://org/other":                                  "there is no repository org/other, or it is private; asked without a token",
	} {
		if err := refused(t, c, ref, want); !fetch.Permanent(err) {
			t.Errorf("%v is not permanent", err)
		}
	}
}

// layouts are file lists of typical repositories of GGUF models.
var layouts = map[string][]string{
	"unsloth": {".gitattributes", "README.md", "config.json", "imatrix_unsloth.gguf", "m-4b-it-BF16.gguf", "m-4b-it-F16.gguf", "m-4b-it-IQ4_XS.gguf", "m-4b-it-Q4_K_M.gguf",
		"m-4b-it-Q8_0.gguf", "m-4b-it-UD-Q4_K_M.gguf", "m-4b-it-UD-Q8_K_XL.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf"},
	"bartowski": {"org_m-70B-Q4_K_M.gguf", "org_m-70B-Q4_K_S.gguf", "org_m-70B-Q8_0/org_m-70B-Q8_0-00001-of-00002.gguf", "org_m-70B-Q8_0/org_m-70B-Q8_0-00002-of-00002.gguf",
		"org_m-70B-bf16/org_m-70B-bf16-00001-of-00003.gguf", "org_m-70B-bf16/org_m-70B-bf16-00003-of-00003.gguf", "org_m-70B-imatrix.gguf", "mmproj-org_m-70B-Q8_0.gguf"},
	"mradermacher": {"M.i1-IQ4_XS.gguf", "M.i1-Q4_K_M.gguf", "M.i1-Q6_K.gguf", "M.imatrix.gguf", "M.mmproj-Q8_0.gguf"},
	"qwen": {"m-7b-instruct-fp16-00001-of-00002.gguf", "m-7b-instruct-fp16-00002-of-00002.gguf", "m-7b-instruct-q4_k_m-00001-of-00002.gguf",
		"m-7b-instruct-q4_k_m-00002-of-00002.gguf", "m-7b-instruct-q8_0.gguf"},
	"folders":     {"Q4_K_M/model-00001-of-00002.gguf", "Q4_K_M/model-00002-of-00002.gguf", "UD-Q4_K_M/model-00001-of-00002.gguf", "UD-Q4_K_M/model-00002-of-00002.gguf"},
	"one":         {"README.md", "m-it-q4_0.gguf", "mmproj-model-f16-4B.gguf"},
	"several":     {"small-Q8_0.gguf", "large-Q8_0.gguf"},
	"safetensors": {"config.json", "model.safetensors"},
}

// TestHubQuant: a quantization is a whole part of a name. Ambiguous, missing or incomplete models are refused before the first byte.
func TestHubQuant(t *testing.T) {
	for _, tt := range []struct {
		layout, query string
		want          []string
		refused       string
	}{
		{"unsloth", "?quant=F16", []string{"m-4b-it-F16.gguf"}, ""},
		{"unsloth", "?quant=bf16", []string{"m-4b-it-BF16.gguf"}, ""},
		{"unsloth", "?quant=default", []string{"m-4b-it-Q4_K_M.gguf"}, ""},
		{"unsloth", "", []string{"m-4b-it-Q4_K_M.gguf"}, ""},
		{"unsloth", "?quant=UD-Q4_K_M", []string{"m-4b-it-UD-Q4_K_M.gguf"}, ""},
		{"unsloth", "?quant=q8_k_xl", []string{"m-4b-it-UD-Q8_K_XL.gguf"}, ""},
		{"unsloth", "?quant=F32", nil, "no GGUF model of the quantization F32: name one of BF16, F16, IQ4_XS, Q4_K_M, Q8_0, UD-Q4_K_M, UD-Q8_K_XL"},
		{"unsloth", "?quant=Q4_K", nil, "name one of"},
		{"bartowski", "?quant=Q8_0", []string{"org_m-70B-Q8_0/org_m-70B-Q8_0-00001-of-00002.gguf", "org_m-70B-Q8_0/org_m-70B-Q8_0-00002-of-00002.gguf"}, ""},
		{"bartowski", "?quant=default", []string{"org_m-70B-Q4_K_M.gguf"}, ""},
		{"bartowski", "?quant=BF16", nil, "of which org_m-70B-bf16-00002-of-00003.gguf is missing"},
		{"bartowski", "/org_m-70B-Q8_0?quant=default", []string{"org_m-70B-Q8_0-00001-of-00002.gguf", "org_m-70B-Q8_0-00002-of-00002.gguf"}, ""},
		{"bartowski", "/org_m-70B-Q8_0/org_m-70B-Q8_0-00001-of-00002.gguf", []string{"org_m-70B-Q8_0-00001-of-00002.gguf", "org_m-70B-Q8_0-00002-of-00002.gguf"}, ""},
		{"bartowski", "/org_m-70B-bf16/org_m-70B-bf16-00001-of-00003.gguf", nil, "of which org_m-70B-bf16-00002-of-00003.gguf is missing"},
		{"bartowski", "?include=*Q8_0-00001-of-*&exclude=mmproj*", nil, "of which org_m-70B-Q8_0-00002-of-00002.gguf is missing"},
		{"mradermacher", "?quant=default", []string{"M.i1-Q4_K_M.gguf"}, ""},
		{"mradermacher", "?quant=Q8_0", nil, "name one of i1-IQ4_XS, i1-Q4_K_M, i1-Q6_K"},
		{"qwen", "?quant=Q4_K_M", []string{"m-7b-instruct-q4_k_m-00001-of-00002.gguf", "m-7b-instruct-q4_k_m-00002-of-00002.gguf"}, ""},
		{"qwen", "?quant=fp16", []string{"m-7b-instruct-fp16-00001-of-00002.gguf", "m-7b-instruct-fp16-00002-of-00002.gguf"}, ""},
		{"folders", "?quant=Q4_K_M", []string{"Q4_K_M/model-00001-of-00002.gguf", "Q4_K_M/model-00002-of-00002.gguf"}, ""},
		{"folders", "?quant=UD-Q4_K_M", []string{"UD-Q4_K_M/model-00001-of-00002.gguf", "UD-Q4_K_M/model-00002-of-00002.gguf"}, ""},
		{"folders", "?quant=Q2_K", nil, "name one of Q4_K_M, UD-Q4_K_M"},
		{"one", "?quant=default", []string{"m-it-q4_0.gguf"}, ""},
		{"one", "?quant=F16", nil, "name one of q4_0"},
		{"one", "?include=*.gguf", []string{"m-it-q4_0.gguf", "mmproj-model-f16-4B.gguf"}, ""},
		{"several", "", nil, "there is no GGUF model of the quantization Q4_K_M: name one of Q8_0"},
		{"several", "?quant=Q8_0", nil, "name one of the files as hf://ORG/NAME/FILE: large-Q8_0.gguf, small-Q8_0.gguf"},
		{"safetensors", "?quant=default", nil, "no GGUF model among the 2 files, such as config.json"},
	} {
		h := newHub(t)
		h.files = map[string][]byte{}
		for i, name := range layouts[tt.layout] {
			h.files[name] = random(uint64(i+1), 100)
		}
		c := open(t, h.config(t))
		ref := "hf://org/name" + tt.query
		if tt.refused != "" {
			if err := refused(t, c, ref, tt.refused); !fetch.Permanent(err) {
				t.Errorf("%s of %s: %v is not permanent", ref, tt.layout, err)
			}
			if slices.ContainsFunc(h.seen(), func(s string) bool { return strings.Contains(s, "/resolve/") }) {
				t.Errorf("%s of %s was refused after a download", ref, tt.layout)
			}
			continue
		}
		m := fetched(t, c, ref)
		if got := names(t, tree(c, m)); !slices.Equal(got, tt.want) {
			t.Errorf("%s of %s has %q, want %q", ref, tt.layout, got, tt.want)
		}
		if !strings.HasSuffix(m.GGUF, tt.want[0]) {
			t.Errorf("%s of %s is to be loaded from %q, want %s", ref, tt.layout, m.GGUF, tt.want[0])
		}
	}
}

func TestHubToken(t *testing.T) {
	h := newHub(t)
	h.token = "hf_hush"
	cfg := h.config(t)
	cfg.Hub.TokenFile = filepath.Join(t.TempDir(), "token")
	c := open(t, cfg)
	refused(t, c, "hf://org/name", "is gated: accept its terms at "+h.URL+"/org/name", "without a token")
	check(t, os.WriteFile(cfg.Hub.TokenFile, []byte("hf_wrong\n"), 0o600))
	if err := refused(t, c, "hf://org/name", "with the token"); strings.Contains(err.Error(), "hf_wrong") {
		t.Errorf("the error shows the token: %v", err)
	}
	check(t, os.WriteFile(cfg.Hub.TokenFile, []byte("hf_hush\n"), 0o600)) // read at each use
	fetched(t, c, "hf://org/name")
	for _, name := range names(t, cfg.Dir) {
		if text, _ := os.ReadFile(filepath.Join(cfg.Dir, name)); strings.Contains(string(text), "hf_hush") {
			t.Errorf("%s holds the token", name)
		}
	}
}

func TestHubContentIsChecked(t *testing.T) {
	for name, kind := range map[string]string{"config.json": "git object id", "model.safetensors": "sha256"} {
		h := newHub(t)
		h.body = func(n string) []byte {
			b := slices.Clone(h.files[n])
			if n == name {
				b[3]++
			}
			return b
		}
		c := open(t, h.config(t))
		if err := refused(t, c, "hf://org/name", name, "expected the "+kind); !fetch.Permanent(err) {
			t.Errorf("%v is not permanent", err)
		}
		h.body = nil
		fetched(t, c, "hf://org/name")
	}
}

func TestHubThatLies(t *testing.T) {
	for want, lie := range map[string]func(map[string]any){
		"leaves the model's folder": func(s map[string]any) { s["rfilename"] = "../../etc/passwd" },
		"control characters":        func(s map[string]any) { s["rfilename"] = "a\\b" },
		"is not in its simplest":    func(s map[string]any) { s["rfilename"] = "/etc/" + s["rfilename"].(string) },
		"two files called": func(s map[string]any) {
			s["rfilename"], s["lfs"] = "config.json", nil
			s["blobId"], s["size"] = gitID(nil), 0
		},
		"a digest or a size": func(s map[string]any) { s["blobId"], s["lfs"] = "../../x", nil },
	} {
		h := newHub(t)
		h.lie = lie
		h.body = func(string) []byte { return nil }
		if want != "two files called" {
			h.body = nil
		}
		c := open(t, h.config(t))
		if err := refused(t, c, "hf://org/name?include=*", want); !fetch.Permanent(err) {
			t.Errorf("%v is not permanent", err)
		}
		if left := names(t, filepath.Join(c.Dir(), "trees")); len(left) > 0 {
			t.Errorf("trees/ has %q", left)
		}
	}
}

// TestHubListing: a hub may list a repository without end, on pages without files.
func TestHubListing(t *testing.T) {
	for name, pages := range map[string]int{"the same page": 1, "two pages in turn": 2, "new pages": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t)
			h.plain = true
			h.origin.answer(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, "/tree/") {
					return h.serve(w, r)
				}
				var n int
				_, _ = fmt.Sscan(r.URL.Query().Get("cursor"), &n)
				w.Header().Set("Link", fmt.Sprintf(`<%s%s?cursor=%d>; rel="next"`, h.URL, r.URL.Path, (n+1)%pages))
				_, _ = w.Write([]byte("[]"))
				return true
			})
			if err := refused(t, open(t, h.config(t)), "hf://org/name", "the listing does not end"); !fetch.Permanent(err) {
				t.Errorf("%v is not permanent", err)
			}
		})
	}
}

func TestHubMoves(t *testing.T) {
	h := newHub(t)
	c := open(t, h.config(t))
	first := fetched(t, c, "hf://org/name")
	h.files["config.json"] = []byte(`{"new":true}`)
	h.commit = strings.Repeat("ab", 20)
	before := len(h.seen())
	second := fetched(t, c, "hf://org/name")
	if first.Path == second.Path {
		t.Error("the model was changed under its user")
	}
	holds(t, filepath.Join(second.Path, "config.json"), []byte(`{"new":true}`))
	for _, s := range h.seen()[before:] {
		if strings.HasSuffix(s, ".safetensors") {
			t.Errorf("what has not changed is fetched again: %s", s)
		}
	}
}
