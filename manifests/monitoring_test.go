package manifests

import (
	"encoding/json"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/rouse-dev/rouse/activator/metrics"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/autoscaler"
	"github.com/rouse-dev/rouse/autoscaler/inventory"
)

// described returns the metrics that a front door and an autoscaler have in a cluster, by name: those that the
// dashboard shows.
func described(t *testing.T) map[string]bool {
	t.Helper()
	r := prometheus.NewRegistry()
	if _, err := metrics.New(r, func() int64 { return 0 }); err != nil {
		t.Fatal(err)
	}
	cfg := autoscaler.Config{Devices: []inventory.Device{{ID: api.HostMemory, Capacity: api.GiB}}}
	if _, err := autoscaler.New(cfg, nil, nil, slog.New(slog.DiscardHandler), r); err != nil {
		t.Fatal(err)
	}
	descriptions := make(chan *prometheus.Desc, 100)
	r.Describe(descriptions)
	close(descriptions)
	form := regexp.MustCompile(`fqName: "([^"]+)"`)
	all := map[string]bool{}
	for d := range descriptions {
		m := form.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("%s: not understood", d)
		}
		all[m[1]] = true
	}
	all["rouse_autoscaler_leader"] = true // of package autoscaler/leader, leading or not
	return all
}

// TestDashboard checks that its queries use metrics and labels of the programs.
func TestDashboard(t *testing.T) {
	known, shown := documented(t), described(t)
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(read(t, "components/monitoring/dashboard.json"), &board); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			for _, name := range regexp.MustCompile(`rouse_[a-z_]+`).FindAllString(q.Expr, -1) {
				base := name
				for _, suffix := range []string{"_bucket", "_count", "_sum"} {
					base = strings.TrimSuffix(base, suffix)
				}
				labels, found := known[base]
				if !found {
					t.Errorf("panel %q: no program has the metric %s", p.Title, base)
				}
				used[base] = true
				checkLabels(t, p.Title, q.Expr, labels)
			}
		}
	}
	for name := range shown {
		if !used[name] && !strings.HasPrefix(name, "wva_") {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// checkLabels checks the labels that a query groups and selects by.
func checkLabels(t *testing.T, panel, query string, labels []string) {
	t.Helper()
	var used []string
	for _, m := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(query, -1) {
		used = append(used, strings.Split(m[1], ", ")...)
	}
	for _, m := range regexp.MustCompile(`[{,](\w+)(?:=|!)`).FindAllStringSubmatch(query, -1) {
		used = append(used, m[1])
	}
	for _, l := range used {
		if l != "le" && !slices.Contains(labels, l) {
			t.Errorf("panel %q: the label %q is none of %v: %s", panel, l, labels, query)
		}
	}
}

// TestScrapeConfiguration checks that it is YAML, and finds our pods by label and port.
func TestScrapeConfiguration(t *testing.T) {
	var c struct {
		Jobs []struct {
			Relabel []struct {
				Source []string `yaml:"source_labels"`
				Regex  string   `yaml:"regex"`
				Action string   `yaml:"action"`
			} `yaml:"relabel_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal(read(t, "components/monitoring/prometheus.yml"), &c); err != nil {
		t.Fatal(err)
	}
	all := rendered(t, "default")
	for _, name := range []string{"rouse-activator", "rouse-autoscaler"} {
		d := deployment(t, all, name)
		for _, r := range c.Jobs[0].Relabel {
			if r.Action != "keep" {
				continue
			}
			matches := regexp.MustCompile("^(?:" + r.Regex + ")$").MatchString
			switch r.Source[0] {
			case "__meta_kubernetes_pod_label_app":
				if !matches(d.Spec.Template.Labels["app"]) {
					t.Errorf("the pods of %s are not kept", name)
				}
			case "__meta_kubernetes_pod_container_port_name":
				if !slices.ContainsFunc(d.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return matches(p.Name) }) {
					t.Errorf("no port of %s is kept", name)
				}
			}
		}
	}
}
