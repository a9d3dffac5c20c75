package kn_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/internal/cloudevent"
)

var update = flag.Bool("update", false, "write testdata anew")

// tiny is a service with two revisions in traffic and an old one, and one that is refused.
const tiny = `apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: tiny, namespace: default}
spec: {template: {metadata: {annotations: {autoscaling.knative.dev/class: gpu.autoscaling.rouse.dev}}}}
status:
  url: http://tiny.default.example.com
  conditions: [{type: Ready, status: "True"}]
  traffic: [{revisionName: tiny-00001, percent: 10}, {revisionName: tiny-00002, percent: 90}, {revisionName: tiny-00001, tag: old}]`

func revision(namespace, service, name, created, conditions string) string {
	return fmt.Sprintf(`apiVersion: serving.knative.dev/v1
kind: Revision
metadata:
  name: %s
  namespace: %s
  creationTimestamp: %q
  labels: {serving.knative.dev/service: %s}
  annotations: {autoscaling.knative.dev/class: gpu.autoscaling.rouse.dev}
status: {conditions: [%s]}`, name, namespace, created, service, conditions)
}

// token is the cluster's.
const token = "secret-of-the-cluster"

// populated is a cluster with functions, and an autoscaler that says what becomes of them.
func populated(t *testing.T) (*fakeCluster, *[]string) {
	c := newFakeCluster(t)
	hours := func(n int) string {
		return time.Now().Add(-time.Duration(n)*time.Hour - time.Minute).UTC().Format(time.RFC3339)
	}
	c.put(strings.Join([]string{
		stockKnative, tiny,
		"apiVersion: v1\nkind: Service\nmetadata: {name: rouse-autoscaler, namespace: knative-serving}",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: rouse-control, namespace: knative-serving}\ndata: {token: c2VjcmV0LW9mLXRoZS1jbHVzdGVy}",
		revision("default", "tiny", "tiny-00000", hours(300), ""),
		revision("default", "tiny", "tiny-00001", hours(30), `{type: Ready, status: "True"}`),
		revision("default", "tiny", "tiny-00002", hours(3), `{type: Ready, status: "True"}, {type: Active, status: "False", reason: NoTraffic, message: "It sleeps."}`),
		revision("models", "big", "big-00001", hours(60), `{type: Ready, status: "True"}`),
		"apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: typo, namespace: default}\nspec: {template: {metadata: {annotations: {autoscaling.knative.dev/class: gpu.autoscaling.rouse.dev}}}}",
		revision("default", "typo", "typo-00001", hours(1), `{type: Ready, status: "False", reason: BadAnnotation, message: "rouse.dev/slep-after is no key: did you mean rouse.dev/sleep-after?"}`),
		"apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: hello, namespace: default}",
		"apiVersion: autoscaling.internal.knative.dev/v1alpha1\nkind: PodAutoscaler\nmetadata: {name: tiny-00002, namespace: default}\nstatus: {conditions: [{type: Active, status: \"False\", reason: Asleep, message: \"no request for 1m0s\"}]}",
	}, "\n---\n"))
	var calls []string
	c.admin = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Rouse-Token") != token {
			api.WriteError(w, api.Errorf(http.StatusUnauthorized, "", "want the token"))
			return
		}
		if r.Method == http.MethodPost {
			calls = append(calls, r.URL.RequestURI())
		}
		serveAdmin(w, r)
	})
	return c, &calls
}

func functions() []admin.Function {
	one := func(name, service string, model api.ModelName, instances ...api.InstanceStatus) admin.Function {
		f := api.Function{Name: api.FunctionName(name), Service: api.FunctionName(service), Model: model, Runtime: api.Runtime{Model: "pico"}, Origin: "revision " + name}.WithDefaults()
		return admin.Function{Function: f, Instances: instances, Need: api.Memory{Host: 50 * api.MiB}}
	}
	since := time.Now().Add(-5 * time.Minute)
	asleep := api.InstanceStatus{Instance: "tiny-00002-deployment-7c9-abcde", State: api.Asleep, Level: 1, Since: since, Memory: api.Memory{Host: 12 * api.MiB}}
	awake := api.InstanceStatus{Instance: "big-00001-deployment-5d4-xyz12", State: api.Awake, Since: since, Running: 2,
		Memory: api.Memory{Host: 3 * api.GiB, Devices: 1, PerDevice: 20 * api.GiB}}
	tiny2 := one("default/tiny-00002", "default/tiny", "tiny", asleep)
	tiny2.Function.Aliases = []api.ModelName{"tiny-chat"}
	big := one("models/big-00001", "models/big", "big", awake)
	big.Activator = api.Activity{Waiting: 1, Running: 2, LastRequest: time.Now()}
	big.LastRequest = time.Now()
	return []admin.Function{one("default/tiny-00001", "default/tiny", "tiny"), tiny2, one("default/tiny-00000", "default/tiny", "tiny"), big}
}

func serveAdmin(w http.ResponseWriter, r *http.Request) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	decision := api.Decision{Function: "default/tiny-00002", Action: "sleep", Instance: "tiny-00002-deployment-7c9-abcde", Reason: "no request for 1m0s", At: at}
	switch path := strings.TrimPrefix(r.URL.Path, "/rouse/v1/"); {
	case path == "functions":
		api.WriteJSON(w, http.StatusOK, functions())
	case path == "picks" && r.FormValue("request") == "req_a":
		api.WriteJSON(w, http.StatusOK, []api.Pick{{Request: "req_a", Instance: "tiny-00002-deployment-7c9-abcde", At: at,
			Choice: api.Choice{By: "prefix", Known: 3712, Prompt: 3968, Running: 2, Slots: 8, Free: 4, Least: 1}}})
	case path == "picks":
		api.WriteJSON(w, http.StatusOK, []api.Pick{})
	case path == "devices":
		api.WriteJSON(w, http.StatusOK, []admin.Device{{ID: "host", Name: "memory of 2 nodes", Capacity: 60 * api.GiB, Awake: 3 * api.GiB, Asleep: 12 * api.MiB, Free: 57 * api.GiB}})
	case path == "events":
		for _, e := range []api.Event{
			{ID: "1", Source: "/autoscaler", Type: api.EventDecision, Subject: "default/tiny-00002", Time: at, Data: raw(decision)},
			{ID: "2", Source: "/activator", Type: api.EventDemand, Subject: "models/big-00001", Time: at, Data: raw(api.Demand{Waiting: 1, Running: 2, OldestAge: time.Second})},
		} {
			if of := r.URL.Query().Get("function"); of != "" && !strings.HasPrefix(e.Subject, of) {
				continue
			}
			line, _ := cloudevent.Encode(e)
			fmt.Fprintf(w, "%s\n", line)
		}
	case strings.HasSuffix(path, "tiny-00002/wakes"):
		o := api.WakeTrace{Function: "default/tiny-00002", Instance: "tiny-00002-deployment-7c9-abcde", Trace: "4bf92f3577b34da6a3ce929d0e0e4736", Root: "00f067aa0ba902b7",
			Path: "hot", By: api.PartActivator, Activator: "a", Start: time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local), Total: 10 * time.Millisecond}
		o.Add(api.Span{ID: "00000000000000a1", Name: api.SpanHold, Part: api.PartActivator, Took: 6 * time.Millisecond})
		o.Add(api.Span{ID: "00000000000000a2", Name: api.SpanFirstToken, Part: api.PartActivator, After: 6 * time.Millisecond, Took: 4 * time.Millisecond})
		older := o
		older.Path, older.Start = "cold", o.Start.Add(-time.Hour)
		api.WriteJSON(w, http.StatusOK, []api.WakeTrace{older, o})
	case strings.HasSuffix(path, "/wakes"):
		api.WriteJSON(w, http.StatusOK, []api.WakeTrace{})
	case strings.HasSuffix(path, "tiny-00002/why"):
		api.WriteJSON(w, http.StatusOK, []api.Decision{decision})
	case strings.HasSuffix(path, "/why"):
		api.WriteJSON(w, http.StatusOK, []api.Decision{})
	case strings.HasSuffix(path, "big-00001/sleep"):
		api.WriteError(w, api.Errorf(http.StatusConflict, api.CodeBusy, "1 request waits for models/big-00001"))
	default:
		f := functions()[1]
		if strings.HasSuffix(path, "/wake") {
			f.Instances[0].State = api.Awake
		}
		api.WriteJSON(w, http.StatusOK, f)
	}
}

func raw(v any) json.RawMessage {
	text, _ := json.Marshal(v) // plain values
	return text
}

var clock = regexp.MustCompile(`\d\d:\d\d:\d\d(\.\d+)?`)

// TestOutput compares what commands print with testdata/output.txtar, where each file is a command line.
func TestOutput(t *testing.T) {
	c, _ := populated(t)
	archive, err := txtar.ParseFile("testdata/output.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range archive.Files {
		out, err := c.run(strings.Fields(f.Name)...)
		if err != nil {
			out += "error: " + err.Error() + "\n"
		}
		out = clock.ReplaceAllString(out, "HH:MM:SS")
		if out != string(f.Data) && !*update {
			t.Errorf("kn rouse %s printed\n%s\nwant\n%s", f.Name, out, f.Data)
		}
		archive.Files[i].Data = []byte(out)
	}
	if *update {
		if err := os.WriteFile("testdata/output.txtar", txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestListForPrograms(t *testing.T) {
	c, _ := populated(t)
	out, err := c.run("list", "-A", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var got []struct {
		Name      string
		Revisions []struct {
			Name     string
			Percent  int
			Function struct {
				Instances []struct{ State string }
				Function  struct{ SleepAfter string }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	if len(got) != 3 || got[0].Name != "default/tiny" || got[0].Revisions[0].Percent != 90 || len(got[0].Revisions[0].Function.Instances) != 1 {
		t.Errorf("got %+v, want three services, the first with 90 %% on a revision with one instance", got)
	}
	if after := got[0].Revisions[0].Function.Function.SleepAfter; after == "" || strings.Trim(after, "0123456789") == "" {
		t.Errorf("sleepAfter is %q, want a duration with its unit", after)
	}
}

func TestOrders(t *testing.T) {
	c, calls := populated(t)
	for _, tt := range []struct{ command, call, printed string }{
		{"wake tiny", "/rouse/v1/functions/default/tiny-00002/wake", "tiny is awake (tiny-00002)\n"},
		{"wake tiny-00001", "/rouse/v1/functions/default/tiny-00001/wake", "tiny is awake (tiny-00001)\n"},
		{"wake tiny-chat", "/rouse/v1/functions/default/tiny-00002/wake", "tiny is awake (tiny-00002)\n"},
		{"sleep tiny --level 2", "/rouse/v1/functions/default/tiny-00002/sleep?level=2", "tiny is asleep (tiny-00002)\n"},
		{"sleep tiny --unload", "/rouse/v1/functions/default/tiny-00002/stop", "tiny is asleep (tiny-00002)\n"},
		{"sleep tiny-00001", "", "tiny is unloaded: it has no pods\n"},
	} {
		*calls = nil
		out, err := c.run(strings.Fields(tt.command)...)
		if err != nil || out != tt.printed || strings.Join(*calls, " ") != tt.call {
			t.Errorf("%s: %v, calls %v, printed %q; want the call %q and %q", tt.command, err, *calls, out, tt.call, tt.printed)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*fakeCluster)
		command string
		want    []string
	}{
		{"nearly a name", nil, "wake tinny", []string{"did you mean tiny?"}},
		{"another namespace", nil, "describe big", []string{"one in models", "-n models"}},
		{"no name at all", nil, "why something", []string{"there is no function something in the namespace default", "there are: tiny"}},
		{"another class", nil, "wake hello", []string{"kpa.autoscaling.knative.dev", "kn service update hello -n default --annotation-revision autoscaling.knative.dev/class=gpu.autoscaling.rouse.dev"}},
		{"not served", nil, "wake typo", []string{"did you mean rouse.dev/sleep-after?"}},
		{"refused by the autoscaler", nil, "sleep big -n models", []string{"models/big-00001: 1 request waits"}},
		{"no such level", nil, "sleep tiny --level 4", []string{"--level 4", "want 1"}},
		{"no such format", nil, "list -o wide", []string{`--output "wide"`, "json"}},
		{"not installed", func(c *fakeCluster) { c.take("rouse") }, "list", []string{"no Rouse", "kubectl apply -k"}},
		{"no token yet", func(c *fakeCluster) { c.take("secrets/") }, "list", []string{"no autoscaler leads"}},
		{"no leader", func(c *fakeCluster) { c.admin = nil }, "list", []string{"no autoscaler leads", "kubectl get pods"}},
		{"no right to the token", func(c *fakeCluster) {
			c.deny = func(_, resource, _ string) bool { return resource == "secrets" }
		}, "list", []string{"you may not get secrets (rouse-control) in the namespace knative-serving", "kubectl auth can-i get secrets/rouse-control -n knative-serving"}},
		{"no right to the proxy", func(c *fakeCluster) {
			c.deny = func(verb, resource, _ string) bool { return verb == "create" && resource == "services/proxy" }
		}, "wake tiny", []string{"you may not create services/proxy", "kubectl auth can-i create services/http:rouse-autoscaler:http --subresource=proxy -n knative-serving"}},
		{"no right to Services", func(c *fakeCluster) {
			c.deny = func(verb, resource, ns string) bool { return verb == "list" && resource == "services" && ns == "" }
		}, "list -A", []string{"you may not list services of serving.knative.dev in the whole cluster"}},
		{"another token", func(c *fakeCluster) {
			c.put("apiVersion: v1\nkind: Secret\nmetadata: {name: rouse-control, namespace: knative-serving}\ndata: {token: b2xk}")
		}, "top --once", []string{"does not take the token", "kubectl rollout restart"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := populated(t)
			if tt.change != nil {
				tt.change(c)
			}
			c.fails(tt.want, strings.Fields(tt.command)...)
		})
	}
}

// TestRecord: the record comes through the API server, for users with access to the autoscaler, into a private file.
func TestRecord(t *testing.T) {
	c, _ := populated(t)
	inner := c.admin
	c.admin = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == admin.PathRecord {
			fmt.Fprint(w, "the record")
			return
		}
		inner.ServeHTTP(w, r)
	})
	file := filepath.Join(t.TempDir(), "day.flight")
	out, err := c.run("record", file)
	if err != nil || out != file+": 10 B; look into it with rouse replay "+file+"\n" {
		t.Errorf("printed %q, %v", out, err)
	}
	if text, err := os.ReadFile(file); string(text) != "the record" {
		t.Errorf("the file has %q, %v", text, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	if out, err := c.run("record", "-"); out != "the record" || err != nil {
		t.Errorf("printed %q, %v", out, err)
	}
	c.deny = func(_, resource, _ string) bool { return resource == "services/proxy" }
	other := filepath.Join(t.TempDir(), "other.flight")
	if _, err := c.run("record", other); err == nil || !strings.Contains(err.Error(), "you may not get services/proxy") {
		t.Errorf("without the right: %v", err)
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("a file is left of what was refused")
	}
}

// TestClassOfTheCluster: a Service that names no class is a function where the PodAutoscaler of its revision says so, also before the
// autoscaler knows it.
func TestClassOfTheCluster(t *testing.T) {
	c := gpuCluster(t)
	c.put(`apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: plain, namespace: default}
spec: {template: {metadata: {annotations: {rouse.dev/model: pico}}}}
status: {latestCreatedRevisionName: plain-00001}
---
apiVersion: serving.knative.dev/v1
kind: Revision
metadata: {name: plain-00001, namespace: default, labels: {serving.knative.dev/service: plain}}`)
	said := func(class string) {
		c.put("apiVersion: autoscaling.internal.knative.dev/v1alpha1\nkind: PodAutoscaler\nmetadata: {name: plain-00001, namespace: default, annotations: {autoscaling.knative.dev/class: " + class + "}}")
	}
	said("gpu.autoscaling.rouse.dev")
	if out, err := c.run("list"); err != nil || !strings.Contains(out, "plain-00001") {
		t.Errorf("list: %v, printed\n%s\nwant plain", err, out)
	}
	c.fails([]string{"already (of the model pico)"}, "create", "plain", "--model", "pico")
	said("kpa.autoscaling.knative.dev")
	if out, err := c.run("list"); err != nil || strings.Contains(out, "plain") {
		t.Errorf("list: %v, printed\n%s\nwant no plain: it is Knative's", err, out)
	}
	c.fails([]string{"Knative Service of the class kpa.autoscaling.knative.dev"}, "describe", "plain")
	c.fails([]string{"already (which is no function)"}, "create", "plain", "--model", "pico")
}
