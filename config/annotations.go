package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rouse-dev/rouse/api"
)

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

type settings map[string]func(value string) error

func settingsOf(f *api.Function) settings {
	s := settings{AnnotationClass: checkClass}
	for _, k := range Keys(f) {
		s[k.Name] = k.read
	}
	return s
}

// passing is for servers that are no model servers.
func passing(f *api.Function, has func(key string) bool) {
	if f.Runtime.Kind == api.RuntimeHTTP && !has(annotationCredentials) {
		f.PassCredentials = true
	}
}

// Older names of keys. The current one wins, as in Knative.
var spellings = map[string]string{
	"autoscaling.knative.dev/minScale": AnnotationMinScale,
	"autoscaling.knative.dev/maxScale": AnnotationMaxScale,
	"rouse.dev/gone-after":             AnnotationUnloadAfter,
}

// Annotations of others are ignored, unknown ones of Knative's autoscalers rejected.
func (s settings) annotate(key, value string, has func(key string) bool) error {
	name := key
	if newer, older := spellings[key]; older {
		if has(newer) {
			return nil
		}
		name = newer
	}
	set, known := s[name]
	switch {
	case !known && strings.HasPrefix(key, "rouse.dev/conversation-"):
		return fmt.Errorf("the annotation %.100s is gone: give the engine the option --%.100s, among the container's args", key, key[len("rouse.dev/"):])
	case key == "rouse.dev/target-kv-usage", key == "rouse.dev/target-queue":
		return fmt.Errorf("the annotation %s is gone, and what it set is fixed now: leave it out", key)
	case !known && strings.HasPrefix(key, "rouse.dev/"):
		return fmt.Errorf("unknown annotation %.100s: did you mean %s?", key, nearestOf(key, s))
	case !known:
		return checkScaling(key)
	}
	if err := set(strings.TrimSpace(value)); err != nil {
		return fmt.Errorf("annotation %s: %w", key, err)
	}
	return nil
}

func fromAnnotations(f *api.Function, n *yaml.Node, src source) error {
	given := func(key string) (string, bool) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				return n.Content[i+1].Value, true
			}
		}
		return "", false
	}
	has := func(key string) bool { _, found := given(key); return found }
	s := settingsOf(f)
	err := eachAnnotation(n, src, func(key, value string) error { return s.annotate(key, value, has) })
	passing(f, has)
	if err != nil {
		return err
	}
	if err := fromKnative(f, given); err != nil {
		return src.errorf(n, "%v", err)
	}
	return nil
}

// Like kubectl, eachAnnotation rejects values that are not strings and duplicate keys.
func eachAnnotation(n *yaml.Node, src source, see func(key, value string) error) error {
	if n.IsZero() || n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return src.errorf(n, "metadata.annotations: want keys with values")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.ShortTag() == "!!merge" { // the merged keys are not checked here
			continue
		}
		if seen[key.Value] {
			return src.errorf(key, "the annotation %.100s stands there twice", key.Value)
		}
		seen[key.Value] = true
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if tag := value.ShortTag(); value.Kind != yaml.ScalarNode || tag == "!!int" || tag == "!!float" || tag == "!!bool" {
			return src.errorf(value, "annotation %.100s: want a text, in quotes where it looks like a number or a truth value: \"%.100s\"", key.Value, value.Value)
		}
		if err := see(key.Value, value.Value); err != nil {
			return src.errorf(key, "%v", err)
		}
	}
	return nil
}

// Knative does not copy the Service's own annotations to revisions. The adapters override the template's; other
// ones of Rouse or of autoscalers are errors.
func fromServiceAnnotations(f *api.Function, n *yaml.Node, src source) error {
	var read api.Function
	s := settingsOf(&read)
	return eachAnnotation(n, src, func(key, value string) error {
		if err := s.annotate(key, value, func(string) bool { return false }); err != nil {
			return err
		}
		_, known := s[key]
		switch {
		case key == AnnotationAdapters:
			f.Runtime.Adapters = read.Runtime.Adapters
		case known, strings.HasPrefix(key, scalingPrefix):
			return fmt.Errorf("the annotation %s stands at the Service, where nobody reads it: write it in spec.template.metadata.annotations", key)
		}
		return nil
	})
}

func parsed[T any](to *T, parse func(string) (T, error)) field {
	return field{func(s string) error {
		v, err := parse(s)
		if err == nil {
			*to = v
		}
		return err
	}, shown(to)}
}

// Separated by commas.
func parsedList[T ~string](to *[]T, parse func(string) (T, error)) field {
	return field{func(s string) error {
		for one := range strings.SplitSeq(s, ",") {
			v, err := parse(strings.TrimSpace(one))
			if err != nil {
				return err
			}
			*to = append(*to, v)
		}
		return nil
	}, joined(to)}
}

func text(to *string) field {
	return parsed(to, func(s string) (string, error) {
		if s == "" {
			return "", errors.New("it is empty: give it a value or leave it out")
		}
		return s, nil
	})
}

func size(to *api.Bytes) field {
	return field{parsed(to, func(s string) (api.Bytes, error) {
		b, err := api.ParseBytes(s)
		if err == nil && b == 0 { // not set
			err = fmt.Errorf("%q: want more than 0, such as 512Mi", s)
		}
		return b, err
	}).read, func() string {
		switch {
		case *to%api.GiB == 0:
			return fmt.Sprintf("%dGi", *to/api.GiB)
		case *to%api.MiB == 0:
			return fmt.Sprintf("%dMi", *to/api.MiB)
		}
		return strconv.FormatInt(int64(*to), 10)
	}}
}

func duration(to *time.Duration) field {
	return lasting(0, math.MaxInt64, "a duration such as 30s, 10m, 2d or 0", to)
}

func positive(to *time.Duration) field {
	return lasting(1, math.MaxInt64, "a duration above zero, such as 30s or 10m", to)
}

func lasting(least, most time.Duration, want string, to *time.Duration) field {
	return parsed(to, func(s string) (time.Duration, error) {
		d, err := api.ParseDuration(s)
		if err != nil || d < least || d > most {
			return 0, fmt.Errorf("%q: want %s", s, want)
		}
		return d, nil
	})
}

func count(least int, to *int) field {
	return parsed(to, func(s string) (int, error) {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || int(n) < least {
			return 0, fmt.Errorf("%q: want a whole number from %d to %d", s, least, math.MaxInt32)
		}
		return int(n), nil
	})
}

func oneName(s string) (api.ModelName, error) {
	if s == "" || strings.ContainsAny(s, ", \t\n") {
		return "", fmt.Errorf("%q: want the name of one model, without spaces or commas", s)
	}
	return api.ModelName(s), nil
}

func shown[T any](value *T) func() string {
	return func() string { return fmt.Sprint(*value) }
}

func joined[T ~string](all *[]T) func() string {
	return func() string {
		list := make([]string, len(*all))
		for i, a := range *all {
			list[i] = string(a)
		}
		return strings.Join(list, ", ")
	}
}

func alias(s string) (api.ModelName, error) {
	if s == "" {
		return "", errors.New("a name is empty: want names separated by commas")
	}
	return api.ModelName(s), nil
}

func fallback(name string) (api.ModelName, error) {
	if strings.Contains(name, "://") {
		return "", fmt.Errorf("%q: requests are not sent to other providers, which would see what clients ask: name models of this server", name)
	}
	return oneName(name)
}

func mediaHost(h string) (string, error) {
	h = strings.ToLower(h)
	if h == "" || strings.Trim(h, "abcdefghijklmnopqrstuvwxyz0123456789.:-[]") != "" {
		return "", fmt.Errorf("%q: want hosts separated by commas, such as images.example.com or 10.0.0.7:8443", h)
	}
	return h, nil
}

func (f *target) setRegions(s string) error {
	f.Regions = parseRegions(s)
	if len(f.Regions) == 0 {
		return fmt.Errorf("%q: want regions separated by commas, such as eu-west-1,eu-central-1", s)
	}
	return nil
}

// Adapters parses the value of [AnnotationAdapters]; empty: none.
func Adapters(s string) ([]api.Adapter, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var f target
	if err := f.setAdapters(s); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", AnnotationAdapters, err)
	}
	return f.Runtime.Adapters, nil
}

// AdapterList formats adapters for [Adapters].
func AdapterList(all []api.Adapter) string {
	list := make([]string, len(all))
	for i, a := range all {
		list[i] = string(a.Name) + "=" + a.Path
	}
	return strings.Join(list, ",")
}

func (f *target) setAdapters(s string) error {
	for pair := range strings.SplitSeq(s, ",") {
		name, path, found := strings.Cut(strings.TrimSpace(pair), "=")
		if !found || name == "" || path == "" || strings.ContainsAny(name, " \t\n") {
			return fmt.Errorf("%q: want name=path, several of them separated by commas", pair)
		}
		f.Runtime.Adapters = append(f.Runtime.Adapters, api.Adapter{Name: api.ModelName(name), Path: path})
	}
	return nil
}

// setHandler accepts a JSON list, or words without quotes.
func (f *target) setHandler(s string) error {
	argv := strings.Fields(s)
	if strings.HasPrefix(s, "[") {
		argv = nil
		if err := json.Unmarshal([]byte(s), &argv); err != nil {
			return fmt.Errorf("%q: want words, or a JSON list of texts: %w", s, api.Explain(err))
		}
	}
	if len(argv) == 0 || argv[0] == "" {
		return fmt.Errorf("%q: want a program and its arguments", s)
	}
	f.Handler = argv
	return nil
}

func (f *target) handler() string {
	if f.Handler == nil {
		return ""
	}
	list, _ := json.Marshal(f.Handler)
	return string(list)
}

func choice(to *string, a, b, c string) field {
	return parsed(to, func(s string) (string, error) {
		if s != a && s != b && s != c {
			return "", fmt.Errorf("%.100q: want %s, %s or %s", s, a, b, c)
		}
		return s, nil
	})
}

func (f *target) setSleepLevel(s string) error {
	switch s {
	case "1":
		f.SleepLevel = api.Level1
	case "2":
		f.SleepLevel = api.Level2
	default:
		return fmt.Errorf("%q: want 1 or 2", s)
	}
	f.FixedLevel = true
	return nil
}

func (f *target) sleepLevel() string {
	if !f.FixedLevel {
		return ""
	}
	return strconv.Itoa(int(f.SleepLevel))
}

func truth(s string) (bool, error) {
	v, err := strconv.ParseBool(s)
	if err != nil {
		err = fmt.Errorf("%q: want true or false", s)
	}
	return v, err
}

func (f *target) setReuse(s string) error {
	v, err := truth(s)
	f.Runtime.ReuseConnections = &v
	return err
}

func (f *target) reuse() string {
	if f.Runtime.ReuseConnections == nil {
		return ""
	}
	return strconv.FormatBool(*f.Runtime.ReuseConnections)
}

// As in Knative, 0 is no bound.
func (f *target) setMaxScale(s string) error {
	if err := count(0, &f.MaxScale).read(s); err != nil {
		return err
	}
	if f.MaxScale == 0 {
		f.MaxScale = math.MaxInt32
	}
	return nil
}

func number(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		err = fmt.Errorf("%q: want a whole number", s)
	}
	return n, err
}

func checkClass(s string) error {
	if s != Class {
		return fmt.Errorf("%q: Rouse serves functions of the class %s", s, Class)
	}
	return nil
}
