package replicas

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rouse-dev/rouse/api"
)

const (
	DefaultMetric   = "rouse_desired_replicas"
	DefaultInterval = time.Second
	DefaultTimeout  = 2 * time.Second
	DefaultResync   = 15 * time.Second
	DefaultLifetime = time.Minute
	DefaultRate     = 50
)

// most is a rule's default: a mistake should not fill a cluster.
const most = 1000

const (
	mostRate     = 10000         // a second
	mostReplicas = math.MaxInt32 // as in Kubernetes
	mostInterval = time.Hour
	mostLifetime = 24 * time.Hour // the autoscaler's limit
)

// Config says what is read, how often, and what it means.
type Config struct {
	// Metric is the gauge that is read. Default [DefaultMetric].
	Metric string `yaml:"metric"`
	// Sources are addresses of Prometheus text, such as http://host:9091/metrics.
	Sources []string `yaml:"sources"`
	// Targets are the rules; the first one that matches a series counts.
	Targets []Rule `yaml:"targets"`

	// Interval is between two readings of a source. Default [DefaultInterval].
	Interval time.Duration `yaml:"interval"`
	// Timeout bounds one reading. Default [DefaultTimeout].
	Timeout time.Duration `yaml:"timeout"`
	// Resync is between checks of an unchanged target. Default [DefaultResync].
	Resync time.Duration `yaml:"resync"`
	// Lifetime is how long a function of Rouse keeps a number. Default [DefaultLifetime].
	Lifetime time.Duration `yaml:"lifetime"`
	// Rate bounds all writes per second. Default [DefaultRate].
	Rate float64 `yaml:"rate"`
	// DryRun logs what would be written.
	DryRun bool `yaml:"dryRun"`
}

// Rule maps series to a target. In Namespace and Name, {label} stands for its value. {exported_namespace} is
// {namespace}, renamed by Prometheus.
type Rule struct {
	// Labels have a value, or a pattern with *.
	Labels map[string]string `yaml:"labels"`
	Kind   Kind              `yaml:"kind"`
	// Namespace's default is {namespace}, Name's {variant_name}.
	Namespace string `yaml:"namespace"`
	Name      string `yaml:"name"`
	// A Max of 0 means 1000.
	Min int `yaml:"min"`
	Max int `yaml:"max"`
}

// Kind is a kind of target.
type Kind string

// Kinds of target.
const (
	Deployment  Kind = "deployment"
	ReplicaSet  Kind = "replicaset"
	StatefulSet Kind = "statefulset"
	Revision    Kind = "revision" // Knative's, of any class
	Service     Kind = "service"  // Knative's: its newest ready revision
)

var kinds = []Kind{Deployment, ReplicaSet, StatefulSet, Revision, Service}

// Parse reads one YAML document. An unknown field is an error.
func Parse(raw []byte) (Config, error) {
	var c Config
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	err := d.Decode(&c)
	if errors.Is(err, io.EOF) {
		return c, nil
	}
	if err == nil {
		if err = d.Decode(new(yaml.Node)); errors.Is(err, io.EOF) {
			return c, nil
		}
		err = errors.New("there is more behind the first document: put all into one, or start a relay for each")
	}
	return c, fmt.Errorf("read the relay's configuration: %w", api.Explain(err))
}

// Validate sets defaults and reports the first invalid field.
func (c *Config) Validate() error {
	c.Metric = cmp.Or(c.Metric, DefaultMetric)
	c.Interval, c.Timeout = cmp.Or(c.Interval, DefaultInterval), cmp.Or(c.Timeout, DefaultTimeout)
	c.Resync, c.Lifetime = cmp.Or(c.Resync, DefaultResync), cmp.Or(c.Lifetime, DefaultLifetime)
	c.Rate = cmp.Or(c.Rate, DefaultRate)
	switch {
	case !metricName.MatchString(c.Metric):
		return fmt.Errorf("metric %q: want the name of a metric", c.Metric)
	case len(c.Sources) == 0:
		return errors.New("no sources: name at least one address of metrics, such as http://rouse-autoscaler.knative-serving:9091/metrics")
	case len(c.Targets) == 0:
		return errors.New("no targets: say with at least one rule what a series scales")
	case c.Interval < 100*time.Millisecond || c.Timeout <= 0 || c.Resync < time.Second:
		return fmt.Errorf("interval %v, timeout %v, resync %v: want at least 100ms, more than 0, at least 1s", c.Interval, c.Timeout, c.Resync)
	case c.Interval > mostInterval || c.Timeout > mostInterval || c.Lifetime > mostLifetime:
		return fmt.Errorf("interval %v, timeout %v, lifetime %v: want at most %v, %v, %v", c.Interval, c.Timeout, c.Lifetime, mostInterval, mostInterval, mostLifetime)
	case c.Lifetime < 3*c.Interval || c.Lifetime < 3*time.Second:
		return fmt.Errorf("lifetime %v: want at least three intervals and 3s, so that one lost renewal loses nothing", c.Lifetime)
	case !(c.Rate > 0 && c.Rate <= mostRate): // excludes NaN
		return fmt.Errorf("rate %v: want more than 0 and at most %d writes a second", c.Rate, mostRate)
	}
	for _, s := range c.Sources {
		if u, err := url.Parse(s); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return fmt.Errorf("source %q: want http://host:port/path", s)
		}
		if _, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s, nil); err != nil {
			return fmt.Errorf("source %q: %w", s, err)
		}
	}
	for i := range c.Targets {
		if err := c.Targets[i].validate(); err != nil {
			return fmt.Errorf("target %d: %w", i+1, err)
		}
	}
	return nil
}

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	labelWord  = regexp.MustCompile(`\{([a-zA-Z_][a-zA-Z0-9_]*)\}`)
)

func (r *Rule) validate() error {
	r.Kind = Kind(strings.ToLower(string(r.Kind)))
	r.Namespace, r.Name = cmp.Or(r.Namespace, "{namespace}"), cmp.Or(r.Name, "{variant_name}")
	r.Max = cmp.Or(r.Max, most)
	switch {
	case !slices.Contains(kinds, r.Kind):
		return fmt.Errorf("kind %q: want one of %v", r.Kind, kinds)
	case r.Min < 0 || r.Max < r.Min:
		return fmt.Errorf("min %d, max %d: want 0 or more, and max not below min", r.Min, r.Max)
	case r.Max > mostReplicas:
		return fmt.Errorf("max %d: want at most %d", r.Max, mostReplicas)
	}
	for _, template := range []string{r.Namespace, r.Name} {
		if strings.ContainsAny(labelWord.ReplaceAllString(template, ""), "{}/ ") {
			return fmt.Errorf("%q: want a name, in which {label} stands for a label", template)
		}
	}
	for label, pattern := range r.Labels {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("label %s: pattern %q: %w", label, pattern, err)
		}
	}
	return nil
}
