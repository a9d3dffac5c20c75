package manifests

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/rouse-dev/rouse/api/control"
)

var update = flag.Bool("update", false, "write the files that are made from other files")

// alert is one rule.
type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// ruleGroups is the content of a file of rules.
type ruleGroups struct {
	Groups []struct {
		Name  string  `json:"name"`
		Rules []alert `json:"rules"`
	} `json:"groups"`
}

// alerts reads the file of rules.
func alerts(t *testing.T) []alert {
	t.Helper()
	var file ruleGroups
	if err := sigsyaml.UnmarshalStrict(read(t, "components/alerts/rules.yml"), &file); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 20 {
		t.Fatalf("%d alerts: the test reads the wrong file", len(all))
	}
	return all
}

// documented returns the labels of all metrics by name, as docs/metrics.md has them, which is made from the programs.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(raw)) {
		cells := strings.Split(line, " | ")
		name, is := strings.CutPrefix(cells[0], "| `")
		if !is {
			continue
		}
		var labels []string
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1) {
			labels = append(labels, m[1])
		}
		name = strings.TrimSuffix(name, "`")
		if strings.HasPrefix(name, "rouse_function_") { // whose it is the PodMonitors say
			labels = append(labels, "function")
		}
		all[name] = labels
	}
	if len(all) < 60 {
		t.Fatalf("%d metrics in docs/metrics.md: the test does not understand it", len(all))
	}
	return all
}

// TestAlerts: each alert uses metrics and labels that programs have, says what it means and what is to be done, and where that is written.
func TestAlerts(t *testing.T) {
	known := documented(t)
	pages := map[string]bool{}
	for _, a := range alerts(t) {
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) || a.For == "" || len(a.Labels) != 1 {
			t.Errorf("%s: for %q, labels %v: want a time and one severity of critical, warning, info", a.Alert, a.For, a.Labels)
		}
		metrics := regexp.MustCompile(`rouse_[a-z_]+`).FindAllString(a.Expr, -1)
		if len(metrics) == 0 {
			t.Errorf("%s uses no metric of ours: %s", a.Alert, a.Expr)
		}
		for _, name := range metrics {
			base := name
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				base = strings.TrimSuffix(base, suffix)
			}
			labels, found := known[base]
			if !found {
				t.Errorf("%s: no program has the metric %s", a.Alert, base)
			}
			checkLabels(t, a.Alert, a.Expr, append(slices.Clone(labels), "instance")) // Prometheus's own
		}
		for _, text := range []string{"summary", "description"} {
			for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(a.Annotations[text], -1) {
				if !strings.Contains(a.Expr, "by ("+m[1]) && !strings.Contains(a.Expr, ", "+m[1]) {
					t.Errorf("%s: its %s has the label %s, which its series have not", a.Alert, text, m[1])
				}
			}
			if a.Annotations[text] == "" {
				t.Errorf("%s has no %s", a.Alert, text)
			}
		}
		if want := "https://github.com/rouse-dev/rouse/blob/main/docs/runbooks/" + a.Alert + ".md"; a.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url is %q, want %s", a.Alert, a.Annotations["runbook_url"], want)
		}
		page, err := os.ReadFile("../docs/runbooks/" + a.Alert + ".md")
		if err != nil {
			t.Errorf("%s has no runbook: %v", a.Alert, err)
		}
		for _, want := range []string{"# " + a.Alert + "\n", "## What it means\n", "## What to look at\n", "## What to do\n", "after " + a.For, "severity `" + a.Labels["severity"] + "`", "    " + a.Expr + "\n"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("the runbook of %s has no %q", a.Alert, want)
			}
		}
		pages[a.Alert+".md"] = true
	}
	index, err := os.ReadFile("../docs/runbooks/README.md")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("../docs/runbooks")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "README.md" {
			continue
		}
		if !pages[e.Name()] {
			t.Errorf("docs/runbooks/%s is of no alert", e.Name())
		}
		if !strings.Contains(string(index), "]("+e.Name()+")") {
			t.Errorf("docs/runbooks/README.md does not name %s", e.Name())
		}
	}
}

// TestPrometheusRule: the operator's object is the file of rules.
func TestPrometheusRule(t *testing.T) {
	var file map[string]any
	if err := sigsyaml.Unmarshal(read(t, "components/alerts/rules.yml"), &file); err != nil {
		t.Fatal(err)
	}
	made, err := sigsyaml.Marshal(map[string]any{
		"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
		"spec": file,
		"metadata": map[string]any{
			"name": "rouse", "namespace": control.SystemNamespace,
			"labels": map[string]string{"app.kubernetes.io/name": "rouse", "app.kubernetes.io/part-of": "rouse"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	made = append([]byte("# Made of rules.yml: go test ./manifests -run TestPrometheusRule -update\n"), made...)
	const path = "components/alerts/prometheus-rule.yaml"
	if *update {
		if err := os.WriteFile(path, made, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, made) {
		t.Errorf("%s differs from rules.yml (%v): go test ./manifests -run TestPrometheusRule -update", path, err)
	}
}

// TestAlertRules has Prometheus's own program check the rules and run their tests. Each alert has one in which it is sent, and one
// in which it is not.
func TestAlertRules(t *testing.T) {
	var tests struct {
		Tests []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert  string           `json:"alertname"`
				Alerts []map[string]any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := sigsyaml.Unmarshal(read(t, "components/alerts/rules_test.yml"), &tests); err != nil {
		t.Fatal(err)
	}
	sent := map[string][2]int{}
	for _, c := range tests.Tests {
		for _, r := range c.Rules {
			n := sent[r.Alert]
			n[min(len(r.Alerts), 1)]++
			sent[r.Alert] = n
		}
	}
	for _, a := range alerts(t) {
		if n := sent[a.Alert]; n[0] == 0 || n[1] == 0 {
			t.Errorf("%s: %d tests in which it is not sent and %d in which it is, want one of each", a.Alert, n[0], n[1])
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		cache, _ := os.UserCacheDir()
		promtool = filepath.Join(cache, "rouse/promtool/usr/bin/promtool")
		if _, err := os.Stat(promtool); err != nil {
			t.Skip("promtool is not installed: it is in Debian's package prometheus")
		}
	}
	for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"test", "rules", "rules_test.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = "components/alerts"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestPodMonitor: each program of ours that has a port for metrics is read.
func TestPodMonitor(t *testing.T) {
	all := rendered(t, "default", "monitoring", "any-image", "relay", "agent")
	monitors := of[*podMonitor](all)
	monitor := monitors[slices.IndexFunc(monitors, func(m *podMonitor) bool { return m.Name == "rouse" })]
	found := 0
	for _, d := range of[*appsv1.Deployment](all) {
		for _, c := range d.Spec.Template.Spec.Containers {
			if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == monitor.Spec.PodMetricsEndpoints[0].Port }) {
				continue
			}
			found++
			if !slices.Contains(monitor.Spec.Selector.MatchExpressions[0].Values, d.Spec.Template.Labels["app"]) {
				t.Errorf("the PodMonitor does not read %s, which has metrics", d.Name)
			}
		}
	}
	if found < 4 {
		t.Errorf("%d programs with metrics: the test looks in the wrong place", found)
	}
}

// TestPodMonitorsOfInstances: they read the port that instances have, of pods of functions and of no others, and say whose it is; a Prometheus
// without the operator does as well.
func TestPodMonitorsOfInstances(t *testing.T) {
	at := "$1:" + strconv.Itoa(control.FunctionMetricsPort)
	for _, m := range of[*podMonitor](rendered(t, "default", "monitoring")) {
		if m.Name == "rouse" {
			continue
		}
		e := m.Spec.PodMetricsEndpoints[0]
		targets := map[string]string{}
		for _, r := range e.Relabelings {
			targets[r.TargetLabel] = r.Replacement
		}
		if _, says := targets["function"]; e.Port != "user-port" || targets["__address__"] != at || !says || m.Spec.NamespaceSelector == nil || !m.Spec.NamespaceSelector.Any {
			t.Errorf("%s reads %+v of %+v", m.Name, e, m.Spec.NamespaceSelector)
		}
	}
	text := string(read(t, "components/monitoring/prometheus.yml"))
	if !strings.Contains(text, "replacement: "+at+"\n") || !strings.Contains(text, "target_label: function") {
		t.Errorf("prometheus.yml does not read instances at %s", at)
	}
}
