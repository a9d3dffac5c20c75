package local

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/catalog"
	"github.com/rouse-dev/rouse/cmd/internal/verb"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/functions/fetch"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

func (s *server) serveKeys(w http.ResponseWriter, r *http.Request) {
	if s.keys == nil {
		api.WriteError(w, api.Errorf(http.StatusConflict, "", "clients need no key here: make one with `rouse keys create NAME`, and start the server with --keys FILE"))
		return
	}
	verb.ServeKeys(verb.KeysPath(s.cfg.Keys)).ServeHTTP(w, r)
}

// writeManifest leaves out what may be secret, and estimated memory.
func (s *server) writeManifest(w http.ResponseWriter, r *http.Request) {
	f, known := s.declaration(s.named(r))
	if !known {
		api.WriteError(w, s.admin.Unknown(r.Context(), s.named(r)))
		return
	}
	estimated := f
	estimated.Memory.Host = 0
	if checkModel(&estimated) == nil && estimated.Memory.Host == f.Memory.Host {
		f.Memory.Host = 0
	}
	var lacks, names []string
	for _, kv := range f.Runtime.Env {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
	}
	if len(names) > 0 {
		lacks = append(lacks, "the values of "+strings.Join(names, ", "))
	}
	f = f.Redacted()
	f.Runtime.Env = names
	m, err := config.ManifestOf(f)
	if err != nil {
		api.WriteError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/yaml; charset=utf-8")
	if bytes.Contains(m.YAML, []byte(api.Hidden)) {
		lacks = append(lacks, "the secrets where "+api.Hidden+" stands")
	}
	if len(lacks) > 0 {
		fmt.Fprintf(w, "# Fill in what is not shown, %s.\n", strings.Join(lacks, ", and "))
	}
	_, _ = w.Write(m.YAML) // the reader has left
}

const searchTime = 20 * time.Second

func searchModels(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), searchTime)
	defer cancel()
	cfg := fetch.Environment(os.Getenv)
	cfg.Attempts = 1
	found, err := fetch.Search(ctx, cfg, r.FormValue("search"))
	if err != nil {
		err = api.Errorf(http.StatusBadGateway, "", "search for models: %v", err)
	}
	api.Answer(w, found, err)
}

func (s *server) declareModel(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Model string `json:"model"`
	}
	if decodeBody(w, r, &in, "model") {
		done, err := s.serveModel(r.Context(), in.Model)
		api.Answer(w, done, err)
	}
}

// publicModel means no file here, and no other server.
var publicModel = lazyregexp.New(`^(hf\.co/[\w.-]+/[\w.-]+|ollama://([\w-]+/)?[\w.-]+)(:[\w.-]+)?$`)

func (s *server) serveModel(ctx context.Context, ref string) (done admin.Declared, err error) {
	if !publicModel().MatchString(ref) {
		return done, api.BadRequest("model", "the model is %.100q: want hf.co/ORG/NAME[:QUANT] or ollama://NAME[:TAG]", ref)
	}
	gpu := catalog.FindGPU
	if s.cfg.NoGPU {
		gpu = nil
	}
	f, err := catalog.Resolve(ref, "the page", catalog.StoreOf(os.Getenv), gpu)
	if err != nil {
		return done, api.BadRequest("model", "%v", err)
	}
	done = admin.Declared{Function: f.Name, Result: "unchanged"}
	old, known := s.declaration(f.Name)
	problem := s.startProblem(f)
	switch {
	case known && old.Runtime.Kind == f.Runtime.Kind && old.Runtime.Model == f.Runtime.Model:
	case known:
		err = api.Errorf(http.StatusConflict, "", "another function is called %s already: `rouse run NAME=%s` gives this one another name", f.Name.Short(), ref)
	case problem != "":
		err = api.Errorf(http.StatusConflict, "", "%s can't start as things are: %s", f.Name.Short(), problem)
	default:
		done.Result, err = s.Declare(ctx, f)
	}
	return done, err
}
