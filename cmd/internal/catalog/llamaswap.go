package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/shlex"
	"go.yaml.in/yaml/v3"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/config"
	"github.com/rouse-dev/rouse/internal/disk"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

// swapModel has the settings of a model of llama-swap that a function can have. Numbers are texts: they may be macros.
type swapModel struct {
	Cmd, Proxy   string
	Aliases      []yaml.Node // texts, or objects with an id
	Env          []string
	TTL          string `yaml:"ttl"`
	UseModelName string `yaml:"useModelName"`
	Limit        string `yaml:"concurrencyLimit"`
	StartSeconds string `yaml:"healthCheckTimeout"`
	Timeouts     struct {
		First string `yaml:"responseHeader"`
	}
	Filters struct {
		ByID map[string]yaml.Node `yaml:"setParamsByID"`
	}
	Macros yaml.Node
}

type swapFile struct {
	Models       yaml.Node
	Macros       yaml.Node
	TTL          string `yaml:"globalTTL"`
	StartSeconds string `yaml:"healthCheckTimeout"`
	Groups       map[string]swapGroup
	Routing      struct {
		Router struct {
			Settings struct{ Groups map[string]swapGroup }
		}
	}
	Hooks struct {
		OnStartup struct{ Preload []string } `yaml:"on_startup"`
	}
}

type swapGroup struct {
	Persistent bool
	Members    []string
}

// Keys that are kept.
var (
	swapKept      = []string{"models", "macros", "globalTTL", "healthCheckTimeout", "startPort", "includeAliasesInList"}
	swapModelKept = []string{"cmd", "proxy", "aliases", "env", "useModelName", "concurrencyLimit", "healthCheckTimeout", "macros"}
)

const (
	swapMemory = "memory decides what runs together: where there is a GPU each function takes whole ones until rouse.dev/device-memory says less"
	swapNames  = "its names reach no model: give them to a function by rouse.dev/aliases"
	swapShown  = "no list of models shows it"
	swapLogs   = "rouse up has flags for its logs, and rouse logs NAME for those of models"
)

var swapLost = map[string]string{
	"apiKeys":       "until there are keys every client is served: make them with rouse keys create, and start rouse up with --keys",
	"capabilities":  swapShown,
	"checkEndpoint": "a model is ready when it computes; a server without completions, embeddings or rerank needs rouse.dev/runtime: http",
	"cmdStop":       "the process gets SIGTERM, and later SIGKILL; docker run and podman run pass it on",
	"description":   swapShown,
	"filters":       "clients set parameters themselves; a handler of yours can change requests (rouse.dev/handler)",
	"groups":        swapMemory,
	"hooks":         `a function starts with its first request; autoscaling.knative.dev/min-scale: "1" keeps it awake`,
	"logLevel":      swapLogs,
	"logTimeFormat": swapLogs,
	"logToStdout":   swapLogs,
	"matrix":        swapMemory,
	"metadata":      swapShown,
	"name":          swapShown,
	"peers":         "a function runs on this machine; of servers elsewhere take one with rouse.dev/runtime-endpoint, or join them (rouse up --join)",
	"profiles":      swapNames,
	"routing":       swapMemory,
	"selectors":     swapNames,
	"timeouts":      "its server is on this machine; of timeouts only responseHeader is kept",
	"ttl":           "0 would have other models wait for its memory for ever: it sleeps after 24h",
	"unlisted":      "every function is listed at /v1/models",
}

var (
	swapEnv   = lazyregexp.New(`\$\{env\.([A-Za-z_][A-Za-z0-9_]*)\}`)
	swapMacro = lazyregexp.New(`\$\{[^}]*\}`)
)

type swap struct {
	found
	path string
	file swapFile
	gpu  GPU
}

// LlamaSwap declares the models of a configuration of llama-swap. What has no equal here is in left. The error is about
// the file itself.
func LlamaSwap(path string, gpu GPU) (functions []api.Function, left []Skipped, err error) {
	raw, err := disk.ReadText(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read llama-swap's configuration: %w", err)
	}
	raw = swapEnv().ReplaceAllFunc(raw, func(word []byte) []byte { // as llama-swap does, before it parses
		if value, set := os.LookupEnv(string(word[len("${env.") : len(word)-1])); set {
			return []byte(value)
		}
		return word
	})
	s := swap{path: path, gpu: gpu}
	var doc yaml.Node
	var whole map[string]any // refuses anchors that contain themselves
	if err := cmp.Or(yaml.Unmarshal(raw, &doc), yaml.Unmarshal(raw, &whole), yaml.Unmarshal(raw, &s.file)); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, api.Explain(err))
	}
	if s.file.Models.Kind != yaml.MappingNode {
		return nil, nil, fmt.Errorf("%s: it has no models: want llama-swap's config.yaml", path)
	}
	s.lose(doc.Content[0], "", swapKept)
	for _, p := range pairs(&s.file.Models) {
		f, err := s.model(p[0].Value, p[1])
		s.add(s.at(p[0], "models."+p[0].Value), f, err)
	}
	return s.functions, s.left, nil
}

func (s *swap) at(n *yaml.Node, what string) string {
	return printable(fmt.Sprintf("%s:%d: %s", s.path, n.Line, what))
}

func (s *swap) lose(n *yaml.Node, of string, kept []string) {
	for _, p := range pairs(n) {
		if !slices.Contains(kept, p[0].Value) {
			s.skip(s.at(p[0], of+p[0].Value), errors.New(cmp.Or(swapLost[p[0].Value], "Rouse has nothing like it")))
		}
	}
}

// pairs returns n's own pairs, after those of merged mappings that these do not override. Of a list of mappings the first overrides.
func pairs(n *yaml.Node) (own [][2]*yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	var merged []*yaml.Node
	switch n.Kind {
	case yaml.SequenceNode:
		merged = n.Content
	case yaml.MappingNode:
		for p := range slices.Chunk(n.Content, 2) {
			if p[0].Tag == "!!merge" {
				merged = append(merged, p[1])
			} else {
				own = append(own, [2]*yaml.Node(p))
			}
		}
	}
	for _, m := range merged {
		own = append(slices.DeleteFunc(pairs(m), func(m [2]*yaml.Node) bool {
			return slices.ContainsFunc(own, func(p [2]*yaml.Node) bool { return p[0].Value == m[0].Value })
		}), own...)
	}
	return own
}

// expand returns a function that replaces macros, the last first: they may contain earlier ones.
func (s *swap) expand(id string, own *yaml.Node) func(string) string {
	names, values := []string{"MODEL_ID"}, []string{id}
	for _, p := range append(pairs(&s.file.Macros), pairs(own)...) {
		if i := slices.Index(names, p[0].Value); i >= 0 {
			values[i] = p[1].Value
			continue
		}
		names, values = append(names, p[0].Value), append(values, p[1].Value)
	}
	return func(text string) string {
		for i, name := range slices.Backward(names) {
			text = strings.ReplaceAll(text, "${"+name+"}", values[i])
		}
		return text
	}
}

// comment matches lines that llama-swap leaves out of commands.
var comment = lazyregexp.New(`(?m)^\s*#.*$`)

func (s *swap) model(id string, n *yaml.Node) (api.Function, error) {
	var m swapModel
	if err := n.Decode(&m); err != nil {
		return api.Function{}, api.Explain(err)
	}
	expand := s.expand(id, &m.Macros)
	f, err := forCommand(expand(comment().ReplaceAllString(m.Cmd, "")), s.path, s.gpu.Devices)
	if err != nil {
		return f, err
	}
	if err := usePort(f.Runtime.Command, expand(m.Proxy)); err != nil {
		return f, err
	}
	var wrong error
	number := func(text string) int {
		var n int32
		if text = expand(text); yaml.Unmarshal([]byte(text), &n) != nil {
			wrong = fmt.Errorf("%.40q stands where llama-swap wants a whole number", text)
		}
		return int(n)
	}
	ttl := number(cmp.Or(m.TTL, "-1"))
	if ttl < 0 {
		ttl = number(s.file.TTL)
	}
	f.Runtime.Model, f.Concurrency, f.FirstByteTimeout = m.UseModelName, max(number(m.Limit), 0), time.Duration(number(m.Timeouts.First))*time.Second
	f.StartTimeout = time.Duration(max(cmp.Or(number(m.StartSeconds), number(s.file.StartSeconds), 120), 15)) * time.Second
	if wrong != nil {
		return f, wrong
	}
	for _, kv := range m.Env {
		if list, is := strings.CutPrefix(kv, "CUDA_VISIBLE_DEVICES="); is && f.Memory.Devices > 0 {
			f.Memory.Devices = strings.Count(list, ",") + 1
			s.skip(s.at(n, "models."+id+".env "+kv), fmt.Errorf("the function gets %d GPUs, and Rouse says which", f.Memory.Devices))
			continue
		}
		f.Runtime.Env = append(f.Runtime.Env, strings.ReplaceAll(expand(kv), "${PORT}", "$(PORT)"))
	}
	if rest := swapMacro().FindString(strings.Join(append(f.Runtime.Env, f.Runtime.Command...), " ")); rest != "" {
		return f, fmt.Errorf("%s is no macro and no variable that is set", rest)
	}
	kept := append(swapModelKept, "ttl")
	f.SleepAfter = time.Duration(ttl) * time.Second
	switch {
	case !s.persistent(id) && ttl == 0:
		f.SleepAfter, kept = 24*time.Hour, swapModelKept
	case ttl == 0 && slices.Contains(s.file.Hooks.OnStartup.Preload, id):
		f.MinScale = 1
	}
	if f, err = config.Named(f, id); err != nil {
		return f, err
	}
	for _, a := range m.Aliases {
		for _, p := range pairs(&a) {
			if p[0].Value == "id" {
				a.Value = p[1].Value
			}
		}
		s.lose(&a, "models."+id+".aliases.", []string{"id"})
		f.Aliases = append(f.Aliases, api.ModelName(expand(a.Value)))
	}
	for name := range m.Filters.ByID {
		f.Aliases = append(f.Aliases, api.ModelName(expand(name)))
	}
	slices.Sort(f.Aliases)
	f.Aliases = slices.DeleteFunc(slices.Compact(f.Aliases), func(a api.ModelName) bool { return a == f.Model })
	s.lose(n, "models."+id+".", kept)
	return f, nil
}

// persistent reports whether llama-swap unloads a model for no other.
func (s *swap) persistent(id string) bool {
	for _, groups := range []map[string]swapGroup{s.file.Groups, s.file.Routing.Router.Settings.Groups} {
		for _, g := range groups {
			if g.Persistent && slices.Contains(g.Members, id) {
				return true
			}
		}
	}
	return false
}

// usePort has a command listen on its function's port, in place of its proxy's.
func usePort(command []string, proxy string) error {
	u, err := url.Parse(strings.ReplaceAll(cmp.Or(proxy, "http://localhost"), "${PORT}", "0"))
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && !ip.IsLoopback() || strings.Trim(u.Path, "/") != "" {
		return fmt.Errorf("its proxy is %s, and requests go to the root of a server on this machine", proxy)
	}
	listens := false
	for i, word := range command {
		rest, is := strings.CutSuffix(word, u.Port())
		if is && u.Port() > "0" && (rest == "" || strings.HasSuffix(rest, "=") || strings.HasSuffix(rest, ":")) {
			word = rest + "$(PORT)"
		}
		command[i] = strings.ReplaceAll(word, "${PORT}", "$(PORT)")
		listens = listens || strings.Contains(command[i], "$(PORT)")
	}
	if !listens {
		return errors.New("its command does not say on which port it listens: write ${PORT} there")
	}
	return nil
}

// Command declares the function of NAME=COMMAND, with one GPU where there is one. gpu may be nil.
func Command(named, origin string, gpu func() GPU) (api.Function, error) {
	name, line, _ := strings.Cut(named, "=")
	f, err := forCommand(line, origin, devices(gpu))
	if err == nil {
		f, err = config.Named(f, strings.TrimSpace(name))
	}
	if err != nil {
		return f, fmt.Errorf("%s %.80q: %w: want NAME='PROGRAM --port $(PORT) …'", origin, named, err)
	}
	return f, nil
}

func forCommand(line, origin string, gpus int) (api.Function, error) {
	words, err := shlex.Split(strings.ReplaceAll(line, "\\\n", " "))
	if err == nil && len(words) == 0 {
		err = errors.New("there is no command")
	}
	return api.Function{
		Runtime: api.Runtime{Kind: api.RuntimeCommand, Command: words}, Memory: api.Memory{Devices: gpus},
		SleepAfter: config.DefaultSleepAfter, UnloadAfter: config.DefaultUnloadAfter, Origin: origin,
	}, err
}
