package config

import (
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rouse-dev/rouse/api"
)

// Accept restricts the functions of front doors to what is known to be harmless.
type Accept struct {
	// References, and prefixes that end in a slash. A registry of ollama:// other than the configured one must be
	// named. Default: [AcceptedModels].
	Models []string
	// Any program, options and environment.
	Programs bool
}

// AcceptedModels have neither a path nor a host of the declaration's choice.
var AcceptedModels = []string{"pico", "hf://", "ollama://"}

// Validate returns an error for the first invalid model.
func (a Accept) Validate() error {
	for _, m := range a.Models {
		scheme, rest, is := strings.Cut(m, "://")
		switch {
		case m == "" || !plain(m):
			return fmt.Errorf("%q is no beginning of a model's reference: want one such as hf://org/ or https://models.example.com/, without .., %%, spaces and backslashes", m)
		case is && (scheme == "http" || scheme == "https") && rest == "", m == "/", strings.HasPrefix(m, "file:"):
			return fmt.Errorf("%q names no host and no folder: want one such as https://models.example.com/ or /srv/models/", m)
		}
	}
	return nil
}

func (a Accept) models() []string {
	if len(a.Models) == 0 {
		return AcceptedModels
	}
	return a.Models
}

// All parsers split the reference alike.
func plain(ref string) bool {
	return !strings.Contains(ref, "..") && !strings.ContainsAny(ref, "%\\ \t\r\n")
}

// Equal to a model, or below one.
func (a Accept) takes(ref string) bool {
	return plain(ref) && slices.ContainsFunc(a.models(), func(m string) bool {
		rest, found := strings.CutPrefix(ref, m)
		switch {
		case !found || m == "ollama://" && strings.Count(rest, "/") > 1:
			return false
		case rest == "" || strings.HasSuffix(m, "/"):
			return true
		}
		return strings.ContainsRune("/?#", rune(rest[0])) || rest[0] == '@' && !strings.HasPrefix(m, "http") // in an http URL, @ ends the user name
	})
}

// Read parses a front door's manifest as [Here]. It returns the function with its annotations, or an error for what
// is not accepted. The caller checks which front door may run functions.
func (a Accept) Read(name api.FunctionName, manifest, front string) (api.Function, map[string]string, error) {
	f, err := Here(manifest, "the front door "+front, ".")
	if err != nil {
		return f, nil, fmt.Errorf("the manifest can't be read here: %w", err)
	}
	var s service
	if err := yaml.Unmarshal([]byte(manifest), &s); err != nil {
		return f, nil, fmt.Errorf("the manifest can't be read here: %w", err)
	}
	if f.Name != name {
		return f, nil, fmt.Errorf("the manifest is that of %s, not of %s", f.Name, name)
	}
	annotations, err := a.annotations(&s.Spec.Template.Metadata.Annotations, f.Runtime.Kind)
	if err != nil {
		return f, nil, err
	}
	rt := f.Runtime
	switch {
	case rt.Endpoint != "" || len(s.Spec.Template.Spec.Containers) != 1:
		return f, nil, fmt.Errorf("this cluster accepts no function with %s or a sidecar: it would let others reach a server of its own", AnnotationEndpoint)
	case a.Programs:
		return f, annotations, nil
	case len(rt.Command)+len(f.Handler)+len(rt.Env) > 0:
		return f, nil, errors.New("this cluster accepts no function with a command, a handler or an environment of its own")
	case rt.Model != "" && !a.takes(rt.Model):
		return f, nil, fmt.Errorf("this cluster accepts no function with the model %.200s: its operator has to name it (--accept-models is %s)", rt.Model, strings.Join(a.models(), ","))
	}
	for _, adapter := range rt.Adapters {
		if !a.takes(adapter.Path) {
			return f, nil, fmt.Errorf("this cluster accepts no adapter at %.200s: its operator has to name it (--accept-models is %s)", adapter.Path, strings.Join(a.models(), ","))
		}
	}
	return f, annotations, acceptArgs(rt.Kind, rt.Args)
}

// Others name programs, paths or addresses, or belong to the operator.
var (
	accepted = leaves("model runtime served-model-name aliases adapters memory device-memory sleep-after sleep-level suspend unload-after gone-after prewake rehearse " +
		"hold-capacity hold-memory hold-timeout evict-sheddable start-timeout wake-timeout priority target-ttft cost variant-of fallback " +
		"canary-tokens client-credentials prefix-cache request-timeout first-byte-timeout idle-timeout clusters remove-after regions")
)

func (a Accept) annotations(n *yaml.Node, kind string) (map[string]string, error) {
	all := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1].Value
		name, ours := strings.CutPrefix(key, "rouse.dev/")
		_, known := accepted[name]
		switch {
		case n.Content[i].Tag == "!!merge":
			return nil, errors.New("this cluster accepts no annotations by a merge of YAML (<<): write them out")
		case ours && !a.Programs && !known:
			return nil, fmt.Errorf("this cluster accepts no function of the runtime %s with the annotation %s from a front door: remove it", kind, key)
		case ours, strings.HasPrefix(key, scalingPrefix):
			all[key] = value
		}
	}
	return all, nil
}

//go:embed harmless
var harmless embed.FS

// Harmless returns the options that open and run nothing, listen nowhere and name no file; true: with a value.
func Harmless(kind string) map[string]bool {
	known := map[string]bool{}
	list, err := harmless.ReadFile("harmless/" + kind + ".txt")
	if err != nil {
		return known
	}
	for line := range strings.FieldsSeq(string(list)) {
		name, valued := strings.CutSuffix(line, "=")
		known[name] = valued
	}
	return known
}

func acceptArgs(kind string, args []string) error {
	known := Harmless(kind)
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(args[i], "=")
		valued, is := known[name]
		switch {
		case !is:
			return fmt.Errorf("this cluster accepts no argument %.80q of the runtime %s from a front door: want %s", name, kind, nearestArgument(name, known))
		case valued && !given && i+1 < len(args):
			i++
			value = args[i]
		case valued && !given:
			return fmt.Errorf("the argument %s has no value", name)
		}
		if (valued || given) && !harmlessValue(value) {
			return fmt.Errorf("this cluster accepts no value %.80q of the argument %s from a front door: want a number, a word or JSON, without paths and URLs", value, name)
		}
	}
	return nil
}

func nearestArgument(name string, known map[string]bool) string {
	if len(known) == 0 {
		return "none"
	}
	return "one such as " + nearestOf(name, known) + " (docs/clusters.md)"
}

// No path, no URL, and not mistakable for an option.
func harmlessValue(value string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	const digits = "0123456789"
	rest, negative := strings.CutPrefix(value, "-")
	first := letters + digits + "{["
	if negative {
		first = digits
	}
	return rest != "" && strings.Contains(first, rest[:1]) && strings.Trim(rest, letters+digits+` _.,:;+{}[]"-`) == "" && !strings.Contains(rest, "..")
}
