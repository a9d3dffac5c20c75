package replicas

import (
	"fmt"
	"log/slog"
	"math"
	"path"
	"regexp"
	"time"
)

// Target is an object with a scale.
type Target struct {
	Kind            Kind
	Namespace, Name string
}

// String returns the target for display.
func (t Target) String() string { return fmt.Sprintf("%s %s/%s", t.Kind, t.Namespace, t.Name) }

// LogValue returns String.
func (t Target) LogValue() slog.Value { return slog.StringValue(t.String()) }

// series is one sample of the metric.
type series struct {
	labels map[string]string
	value  float64
	at     time.Time
}

// label takes the two names for a namespace as one.
func (s series) label(name string) (string, bool) {
	if v, found := s.labels[name]; found {
		return v, true
	}
	switch name {
	case "namespace":
		name = "exported_namespace"
	case "exported_namespace":
		name = "namespace"
	}
	v, found := s.labels[name]
	return v, found
}

func (r Rule) matches(s series) bool {
	for name, pattern := range r.Labels {
		value, found := s.label(name)
		if !found {
			return false
		}
		if ok, _ := path.Match(pattern, value); !ok && pattern != value {
			return false
		}
	}
	return true
}

// RFC 1123 subdomains, without the length.
var objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

func (r Rule) target(s series) (Target, error) {
	t := Target{Kind: r.Kind}
	for _, part := range []struct {
		template string
		to       *string
		what     string
	}{{r.Namespace, &t.Namespace, "namespace"}, {r.Name, &t.Name, "name"}} {
		var missing string
		*part.to = labelWord.ReplaceAllStringFunc(part.template, func(word string) string {
			value, found := s.label(word[1 : len(word)-1])
			if !found {
				missing = word
			}
			return value
		})
		if missing != "" {
			return t, fmt.Errorf("the series %v has no label %s, which the rule's %s needs", s.labels, missing, part.what)
		}
		if len(*part.to) > 253 || !objectName.MatchString(*part.to) {
			return t, fmt.Errorf("the series %v makes the %s %.253q, which is none in Kubernetes", s.labels, part.what, *part.to)
		}
	}
	return t, nil
}

// replicas rounds up.
func (r Rule) replicas(value float64) (int, bool) {
	if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return 0, false
	}
	return int(max(float64(r.Min), min(math.Ceil(value), float64(r.Max)))), true
}

type wish struct {
	replicas int
	known    bool // false: the value is no number of replicas
	at       time.Time
}

// wishes returns an error for each series without a valid target.
func (c *Config) wishes(all []series) (map[Target]wish, []error) {
	out := make(map[Target]wish)
	var errs []error
	for _, s := range all {
		for _, r := range c.Targets {
			if !r.matches(s) {
				continue
			}
			t, err := r.target(s)
			if err != nil {
				errs = append(errs, err)
				break
			}
			n, known := r.replicas(s.value)
			old, found := out[t]
			if !found || known && (!old.known || n > old.replicas) {
				out[t] = wish{n, known, s.at}
			}
			if w := out[t]; old.known && known { // as fresh as the freshest
				if w.at = old.at; s.at.After(w.at) {
					w.at = s.at
				}
				out[t] = w
			}
			break
		}
	}
	return out, errs
}
