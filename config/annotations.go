package config

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rouse-dev/rouse/api"
)

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// setters apply one annotation each; their errors say what was expected.
var setters = map[string]func(*api.Function, string) error{
	api.AnnotationRuntime:       text(func(f *api.Function) *string { return &f.Runtime.Kind }),
	api.AnnotationModel:         text(func(f *api.Function) *string { return &f.Runtime.Model }),
	api.AnnotationServedName:    setServedName,
	api.AnnotationAliases:       setAliases,
	api.AnnotationMemory:        size(func(f *api.Function) *api.Bytes { return &f.Memory.Host }),
	api.AnnotationDeviceMemory:  size(func(f *api.Function) *api.Bytes { return &f.Memory.PerDevice }),
	api.AnnotationSleepAfter:    duration(func(f *api.Function) *time.Duration { return &f.SleepAfter }),
	api.AnnotationSleepLevel:    setSleepLevel,
	api.AnnotationUnloadAfter:   duration(func(f *api.Function) *time.Duration { return &f.UnloadAfter }),
	api.AnnotationPrewake:       oneOf(func(f *api.Function) *bool { return &f.NoPrewake }, "true", "false"),
	api.AnnotationRehearse:      choice(func(f *api.Function) *string { return &f.Rehearse }, api.RehearseMeasured, api.RehearseAlways, api.RehearseNever),
	api.AnnotationSuspend:       choice(func(f *api.Function) *string { return &f.Suspend }, api.SuspendAuto, api.SuspendOn, api.SuspendOff),
	api.AnnotationRuntimeSleep:  truth(func(f *api.Function, v bool) { f.Runtime.Sleeps = v }),
	api.AnnotationReuse:         truth(func(f *api.Function, v bool) { f.Runtime.ReuseConnections = &v }),
	api.AnnotationEndpoint:      setEndpoint,
	api.AnnotationAdapters:      setAdapters,
	api.AnnotationAdapterRoot:   text(func(f *api.Function) *string { return &f.Runtime.AdapterRoot }),
	api.AnnotationHandler:       setHandler,
	api.AnnotationHoldCapacity:  count(1, func(f *api.Function) *int { return &f.Hold.Capacity }),
	api.AnnotationHoldMemory:    size(func(f *api.Function) *api.Bytes { return &f.Hold.MaxBytes }),
	api.AnnotationHoldTimeout:   positive(func(f *api.Function) *time.Duration { return &f.Hold.Timeout }),
	api.AnnotationStartTimeout:  positive(func(f *api.Function) *time.Duration { return &f.StartTimeout }),
	api.AnnotationWakeTimeout:   positive(func(f *api.Function) *time.Duration { return &f.WakeTimeout }),
	api.AnnotationPriority:      setPriority,
	api.AnnotationTargetTTFT:    duration(func(f *api.Function) *time.Duration { return &f.Target.TTFT }),
	api.AnnotationCost:          setCost,
	api.AnnotationVariantOf:     setVariantOf,
	api.AnnotationDualPods:      truth(func(f *api.Function, v bool) { f.DualPods = v }),
	api.AnnotationProviderPatch: setProviderPatch,
	api.AnnotationCanaryTokens:  setCanaryTokens,
	api.AnnotationCredentials:   oneOf(func(f *api.Function) *bool { return &f.PassCredentials }, api.CredentialsDrop, api.CredentialsPass),
	api.AnnotationMediaHosts:    setMediaHosts,
	api.AnnotationPrefixCache:   oneOf(func(f *api.Function) *bool { return &f.SharedPrefixes }, api.PrefixCacheClient, api.PrefixCacheShared),
	api.AnnotationSnapshot:      oneOf(func(f *api.Function) *bool { return &f.Snapshot }, "off", "auto"),
	api.AnnotationEvict:         oneOf(func(f *api.Function) *bool { return &f.Hold.EvictSheddable }, "false", "true"),

	api.AnnotationClusters:    text(func(f *api.Function) *string { return &f.Clusters }),
	api.AnnotationRemoveAfter: setRemoveAfter,
	api.AnnotationRegions:     setRegions,

	api.AnnotationInject: oneOf(func(*api.Function) *bool { return new(bool) }, "true", "false"), // read by the part that creates its pods

	api.AnnotationMinScale: count(0, func(f *api.Function) *int { return &f.MinScale }),
	api.AnnotationMaxScale: setMaxScale,

	api.AnnotationActivationScale: count(1, func(f *api.Function) *int { return &f.ActivationScale }),

	api.AnnotationClass: setClass,

	api.AnnotationRequestTimeout:   duration(func(f *api.Function) *time.Duration { return &f.RequestTimeout }),
	api.AnnotationFirstByteTimeout: duration(func(f *api.Function) *time.Duration { return &f.FirstByteTimeout }),
	api.AnnotationIdleTimeout:      duration(func(f *api.Function) *time.Duration { return &f.IdleTimeout }),
}

// passing passes credentials to a server that is not a model server, unless an annotation says otherwise.
func passing(f *api.Function, has func(key string) bool) {
	if f.Runtime.Kind == api.RuntimeHTTP && !has(api.AnnotationCredentials) {
		f.PassCredentials = true
	}
}

// spellings maps older names of keys, Knative's and Rouse's, to the current ones. If both are present, the newer one
// wins, as in Knative.
var spellings = map[string]string{
	"autoscaling.knative.dev/minScale": api.AnnotationMinScale,
	"autoscaling.knative.dev/maxScale": api.AnnotationMaxScale,
	"rouse.dev/gone-after":             api.AnnotationUnloadAfter,
}

// annotate applies one annotation; has reports whether another is present. It ignores annotations of Knative and
// others, but rejects unknown keys of Knative's autoscalers.
func annotate(f *api.Function, key, value string, has func(key string) bool) error {
	name := key
	if newer, older := spellings[key]; older {
		if has(newer) {
			return nil
		}
		name = newer
	}
	set, known := setters[name]
	switch {
	case !known && strings.HasPrefix(key, "rouse.dev/conversation-"):
		return fmt.Errorf("the annotation %.100s is gone: give the engine the option --%.100s, among the container's args", key, key[len("rouse.dev/"):])
	case key == "rouse.dev/target-kv-usage", key == "rouse.dev/target-queue":
		return fmt.Errorf("the annotation %s is gone, and what it set is fixed now: leave it out", key)
	case !known && strings.HasPrefix(key, "rouse.dev/"):
		return fmt.Errorf("unknown annotation %.100s: did you mean %s?", key, nearestOf(key, setters))
	case !known:
		return checkScaling(key)
	}
	if err := set(f, strings.TrimSpace(value)); err != nil {
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
	err := eachAnnotation(n, src, func(key, value string) error { return annotate(f, key, value, has) })
	passing(f, has)
	if err != nil {
		return err
	}
	if err := fromKnative(f, given); err != nil {
		return src.errorf(n, "%v", err)
	}
	return nil
}

// eachAnnotation calls see with the annotations in n, in order. Like kubectl, it rejects values that are not strings
// and duplicate keys.
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
		if key.ShortTag() == "!!merge" { // the merged mapping's keys are not checked here
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

// fromServiceAnnotations reads the annotations of the Service itself, which Knative does not copy to revisions. It
// accepts the adapters, which override the template's, and rejects other annotations of Rouse or of Knative's
// autoscalers.
func fromServiceAnnotations(f *api.Function, n *yaml.Node, src source) error {
	return eachAnnotation(n, src, func(key, value string) error {
		if err := annotate(&api.Function{}, key, value, func(string) bool { return false }); err != nil {
			return err
		}
		_, known := setters[key]
		switch {
		case key == api.AnnotationAdapters:
			f.Runtime.Adapters, _ = Adapters(value)
		case known, strings.HasPrefix(key, scalingPrefix):
			return fmt.Errorf("the annotation %s stands at the Service, where nobody reads it: write it in spec.template.metadata.annotations", key)
		}
		return nil
	})
}

func text(field func(*api.Function) *string) func(*api.Function, string) error {
	return func(f *api.Function, s string) error {
		if s == "" {
			return fmt.Errorf("it is empty: give it a value or leave it out")
		}
		*field(f) = s
		return nil
	}
}

func size(field func(*api.Function) *api.Bytes) func(*api.Function, string) error {
	return func(f *api.Function, s string) (err error) {
		*field(f), err = api.ParseBytes(s)
		return err
	}
}

func duration(field func(*api.Function) *time.Duration) func(*api.Function, string) error {
	return lasting(0, "a duration such as 30s, 10m or 0", field)
}

func positive(field func(*api.Function) *time.Duration) func(*api.Function, string) error {
	return lasting(1, "a duration above zero, such as 30s or 10m", field)
}

func lasting(least time.Duration, want string, field func(*api.Function) *time.Duration) func(*api.Function, string) error {
	return func(f *api.Function, s string) error {
		d, err := time.ParseDuration(s)
		if err != nil || d < least {
			return fmt.Errorf("%q: want %s", s, want)
		}
		*field(f) = d
		return nil
	}
}

func count(least int, field func(*api.Function) *int) func(*api.Function, string) error {
	return func(f *api.Function, s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < least {
			return fmt.Errorf("%q: want a whole number of at least %d", s, least)
		}
		*field(f) = n
		return nil
	}
}

func setServedName(f *api.Function, s string) error {
	if s == "" || strings.ContainsAny(s, ", \t\n") {
		return fmt.Errorf("%q: want a name without spaces or commas", s)
	}
	f.Model = api.ModelName(s)
	return nil
}

func setAliases(f *api.Function, s string) error {
	for a := range strings.SplitSeq(s, ",") {
		if a = strings.TrimSpace(a); a == "" {
			return fmt.Errorf("%q: want names separated by commas", s)
		}
		f.Aliases = append(f.Aliases, api.ModelName(a))
	}
	return nil
}

func setMediaHosts(f *api.Function, s string) error {
	for h := range strings.SplitSeq(s, ",") {
		h = strings.ToLower(strings.TrimSpace(h))
		if h == "" || strings.Trim(h, "abcdefghijklmnopqrstuvwxyz0123456789.:-[]") != "" {
			return fmt.Errorf("%q: want hosts separated by commas, such as images.example.com or 10.0.0.7:8443", s)
		}
		f.Runtime.MediaHosts = append(f.Runtime.MediaHosts, h)
	}
	return nil
}

func setRemoveAfter(f *api.Function, s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < api.LeastRemoveAfter || d > api.MostRemoveAfter {
		return fmt.Errorf("%q: want a duration from %s to %s", s, api.LeastRemoveAfter, api.MostRemoveAfter)
	}
	f.RemoveAfter = d
	return nil
}

func setRegions(f *api.Function, s string) error {
	f.Regions = api.ParseRegions(s)
	if len(f.Regions) == 0 {
		return fmt.Errorf("%q: want regions separated by commas, such as eu-west-1,eu-central-1", s)
	}
	return nil
}

func setEndpoint(f *api.Function, s string) error {
	var err error
	f.Runtime.Endpoint, err = api.ParseEndpoint(s)
	return err
}

// Adapters parses the value of the annotation [api.AnnotationAdapters]; empty: none.
func Adapters(s string) ([]api.Adapter, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var f api.Function
	if err := setAdapters(&f, s); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", api.AnnotationAdapters, err)
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

func setAdapters(f *api.Function, s string) error {
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
func setHandler(f *api.Function, s string) error {
	argv := strings.Fields(s)
	if strings.HasPrefix(s, "[") {
		argv = nil
		if err := json.Unmarshal([]byte(s), &argv); err != nil {
			return fmt.Errorf("%q: want words, or a JSON list of texts: %w", s, err)
		}
	}
	if len(argv) == 0 || argv[0] == "" {
		return fmt.Errorf("%q: want a program and its arguments", s)
	}
	f.Handler = argv
	return nil
}

// choice sets a field to one of three values.
func choice(field func(*api.Function) *string, a, b, c string) func(*api.Function, string) error {
	return func(f *api.Function, s string) error {
		if s != a && s != b && s != c {
			return fmt.Errorf("%.100q: want %s, %s or %s", s, a, b, c)
		}
		*field(f) = s
		return nil
	}
}

func setSleepLevel(f *api.Function, s string) error {
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

func truth(set func(f *api.Function, v bool)) func(*api.Function, string) error {
	return func(f *api.Function, s string) error {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%q: want true or false", s)
		}
		set(f, v)
		return nil
	}
}

// setMaxScale reads 0 as no bound, as Knative does.
func setMaxScale(f *api.Function, s string) error {
	if err := count(0, func(f *api.Function) *int { return &f.MaxScale })(f, s); err != nil {
		return err
	}
	if f.MaxScale == 0 {
		f.MaxScale = math.MaxInt32
	}
	return nil
}

func setPriority(f *api.Function, s string) error {
	n, err := strconv.Atoi(s)
	if err != nil {
		return fmt.Errorf("%q: want a whole number", s)
	}
	f.Priority = n
	return nil
}

func setClass(_ *api.Function, s string) error {
	if s != api.Class {
		return fmt.Errorf("%q: Rouse serves functions of the class %s", s, api.Class)
	}
	return nil
}
