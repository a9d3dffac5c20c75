package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/functions/process"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// rayServe runs Ray Serve's "serve run": an application with the OpenAI API, given as an import path (module:app) or a configuration
// file. Its HTTP proxy listens on a port of 127.0.0.1. Ray starts its own cluster for it, unless RAY_ADDRESS names one to join.
//
// Applications differ: many have no path but /v1/chat/completions. This adapter relies only on an answer with a token. It does not sleep
// in place, and its metrics are not at its HTTP port.
type rayServe struct {
	server
}

const inConfiguration = "Serve reads it for an import path only, and is always given a configuration file: write one with it, and set the model's reference to its path"

var rayReserved = because(
	inConfiguration, "--name --route-prefix --reload -r",
	"the function ends Ray Serve with its process, which must go on; remove it", "--non-blocking",
)

func newRayServe(cfg Config, c *client) (Runtime, error) {
	return &rayServe{server: newServer(cfg, c, true, "serve", "run")}, nil
}

func (r *rayServe) Traits() Traits { return Traits{Reuses: true} }

func (r *rayServe) Launch(model string) (Launch, error) {
	r.fresh()
	if l, attached := r.attached(); attached {
		return l, nil
	}
	e, port, err := loopback()
	if err != nil {
		return Launch{}, err
	}
	path, err := r.configure(model, port)
	if err != nil {
		return Launch{}, fmt.Errorf("runtime ray-serve: %w", err)
	}
	var env []string
	if process.Variable(r.cfg.Env, "RAY_ADDRESS") == "" {
		env = []string{"RAY_ADDRESS=local"}
	}
	l, err := r.launch(e, nil, env)
	if err != nil {
		return l, err
	}
	l.Args = append(l.Args, path) // click accepts arguments behind options
	// Serve's --app-dir affects only its own process, while a worker of Ray imports the modules that a configuration file names.
	const modules = "PYTHONPATH"
	dir := "." // the default of Serve
	for _, value := range valuesOf(r.cfg.Spec.Args, "--app-dir", "-d") {
		dir = value
	}
	where, err := filepath.Abs(dir)
	if err != nil {
		return Launch{}, fmt.Errorf("runtime ray-serve: the application's folder: %w", err)
	}
	if others := process.Variable(l.Env, modules); others != "" {
		where += string(filepath.ListSeparator) + others
	}
	l.Env = append(l.Env, modules+"="+where)
	return l, nil
}

// configure writes the configuration that Serve runs: the model's, which is an import path or a file, plus the address. Serve accepts a
// port only there.
func (r *rayServe) configure(model, port string) (string, error) {
	if r.cfg.Dir == "" {
		return "", errors.New("no folder for its configuration")
	}
	raw, err := yaml.Marshal(map[string]any{"applications": []any{map[string]string{"import_path": model}}})
	if strings.HasSuffix(model, ".yaml") || strings.HasSuffix(model, ".yml") {
		raw, err = os.ReadFile(model)
	}
	if err != nil {
		return "", fmt.Errorf("read the configuration: %w", err)
	}
	var doc yaml.Node // not a map: Python reads "yes" without quotes as true
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return "", fmt.Errorf("configuration %s: %w", model, err)
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return "", fmt.Errorf("configuration %s: it is no mapping with applications", model)
	}
	options := member(doc.Content[0], "http_options")
	if options.Kind != yaml.MappingNode {
		*options = yaml.Node{Kind: yaml.MappingNode}
	}
	member(options, "host").SetString("127.0.0.1")
	*member(options, "port") = yaml.Node{Kind: yaml.ScalarNode, Value: port}
	if raw, err = yaml.Marshal(&doc); err != nil {
		return "", fmt.Errorf("configuration %s: %w", model, err)
	}
	path := filepath.Join(r.cfg.Dir, "serve.yaml")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return "", fmt.Errorf("write the configuration: %w", err)
	}
	return path, nil
}

// member returns the value of a mapping's key, which it adds if it is missing.
func member(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	value := &yaml.Node{}
	mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	return value
}

func (r *rayServe) Request(path string, body *jsonfield.Object) *api.Error {
	r.named(path, body)
	return nil
}
