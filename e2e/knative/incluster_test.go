package knative

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// TestTheShortWay makes a function by kn rouse create, and the same by kn itself, from the command that the first prints.
func TestTheShortWay(t *testing.T) {
	parallel(t)
	c := rouse(t)
	f := &function{t: t, c: c, name: "short-way"}
	_, _ = c.Kn(t.Context(), "service", "delete", f.name)
	t.Cleanup(f.remove)
	_, _ = c.Kubectl(t.Context(), "create", "secret", "generic", "short-way", "--from-literal=token=of a hub")
	t.Cleanup(func() { kubectl(t, c, "delete", "secret", "short-way", "--ignore-not-found") })
	out, err := c.Kn(t.Context(), "rouse", "create", f.name, "--model", "pico", "--sleep-after", "1h", "--env", "WORDS=two words", "--memory", "64Mi",
		"--env-value-from", "HF_TOKEN=secret:short-way:token", "--env-from", "secret:short-way", "--mount", "/etc/hub=secret:short-way", "--volume", "cache=emptyDir:cache:size=64Mi", "--mount", "/tmp/cache=cache")
	if err != nil || !strings.Contains(out, "is ready: http://"+f.host()) {
		t.Fatalf("%v: %s", err, out)
	}
	f.ask("red blue")
	if out, err := c.Kn(t.Context(), "rouse", "create", f.name, "--model", "pico"); err == nil || !strings.Contains(err.Error(), "there is a Service default/short-way already") {
		t.Errorf("made again: %v: %s", err, out)
	}

	command, _, _ := strings.Cut(out, "Service default/")
	file := filepath.Join(t.TempDir(), "service.yaml")
	kn := exec.CommandContext(t.Context(), "sh", "-c", strings.TrimSpace(command)+" --target "+file)
	kn.Env = c.Env()
	if out, err := kn.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	there, err := c.Kubectl(t.Context(), "get", "ksvc", f.name, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(templateOf(t, raw), templateOf(t, []byte(there))); diff != "" {
		t.Errorf("kn's Service and that of kn rouse create (-kn +rouse):\n%s", diff)
	}
}

// templateOf returns the template that a Service declares, without the fields that Knative fills in.
func templateOf(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	var s struct {
		Spec struct {
			Template struct {
				Metadata struct {
					Annotations map[string]string `json:"annotations"`
				} `json:"metadata"`
				Spec struct {
					Containers []struct {
						Image        string           `json:"image"`
						Args         []string         `json:"args"`
						Env          []map[string]any `json:"env"`
						EnvFrom      []map[string]any `json:"envFrom"`
						VolumeMounts []map[string]any `json:"volumeMounts"`
						Resources    map[string]any   `json:"resources"`
					} `json:"containers"`
					Volumes []map[string]any `json:"volumes"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(raw, &s); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	annotations := s.Spec.Template.Metadata.Annotations
	for key := range annotations {
		if strings.HasPrefix(key, "client.knative.dev/") { // kn's own
			delete(annotations, key)
		}
	}
	if len(annotations) == 0 || len(s.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("%s declares no function", raw)
	}
	return map[string]any{"annotations": annotations, "container": s.Spec.Template.Spec.Containers[0], "volumes": s.Spec.Template.Spec.Volumes}
}

// TestTheClusterIsChecked: kn rouse check finds nothing missing in the cluster of the tests.
func TestTheClusterIsChecked(t *testing.T) {
	parallel(t)
	c := rouse(t)
	out, err := c.Kn(t.Context(), "rouse", "check", "-o", "json")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	var found []struct{ Check, Result, Found string }
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	for _, check := range []string{"kubernetes", "knative", "kinds", "rights", "admission", "rouse-activator", "rouse-autoscaler", "leader", "keys"} {
		if !slices.ContainsFunc(found, func(f struct{ Check, Result, Found string }) bool { return f.Check == check && f.Result == "ok" }) {
			t.Errorf("%s is not ok:\n%s", check, out)
		}
	}
}

// TestThePageOfTheCluster serves the page by kn rouse ui, and reads the page's data as the page does.
func TestThePageOfTheCluster(t *testing.T) {
	parallel(t)
	f := create(t, "on-the-page", functionImage, lasting)
	f.ask("red blue")
	ctx, stop := context.WithCancel(t.Context())
	ui := exec.CommandContext(ctx, filepath.Join(f.c.Bin, "kn-rouse"), "ui")
	ui.Env = f.c.Env()
	ui.Cancel = func() error { return ui.Process.Signal(os.Interrupt) }
	said, err := ui.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := ui.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(said)
	t.Cleanup(func() {
		stop()
		_ = ui.Wait() // by the interrupt
	})
	address, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	at, token, found := strings.Cut(strings.TrimSpace(address), "/#token=")
	if !found {
		t.Fatalf("kn rouse ui prints %q", address)
	}
	get := func(path, token string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "text/html")
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var body strings.Builder
		if _, err := bufio.NewReader(resp.Body).WriteTo(&body); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, body.String()
	}
	if status, body := get("/", ""); status != http.StatusOK || !strings.Contains(body, "<html") {
		t.Errorf("the page is %d %.200s", status, body)
	}
	if status, body := get("/rouse/v1/functions", ""); status == http.StatusOK {
		t.Errorf("without the token the functions are told: %.200s", body)
	}
	if status, body := get("/rouse/v1/functions", token); status != http.StatusOK || !strings.Contains(body, "default/on-the-page-00001") {
		t.Errorf("the functions are %d %.500s", status, body)
	}
}

// envBefore names a commit whose images and manifests are the version before.
const envBefore = "ROUSE_E2E_BEFORE"

// TestUpgradeUnderLoad brings a cluster from the version before to this one while requests run: none fails, and no instance ends. The version
// before is the commit of ROUSE_E2E_BEFORE; without it, this one by another name, whose pods are all replaced too.
func TestUpgradeUnderLoad(t *testing.T) {
	c := rouse(t)
	t.Cleanup(func() {
		if err := install(context.Background(), c); err != nil {
			t.Error(err)
		}
	})
	if err := before(t, c); err != nil {
		t.Fatal(err)
	}
	stock := create(t, "upgraded-stock", helloImage, []string{"autoscaling.knative.dev/target-burst-capacity=-1"})
	f := create(t, "upgraded", functionImage, lasting)
	if out, err := c.Kubectl(t.Context(), "get", "sks/upgraded-00001", "-o", "name", "--ignore-not-found"); err != nil {
		t.Fatalf("%v: %s", err, out)
	} else if out != "" { // functions of 0.1 are reached by Knative's activator-service, as soon as that leads to Rouse
		if out, err := c.Kubectl(t.Context(), "-n", "knative-serving", "wait", "service/activator-service", "--for=jsonpath={.spec.selector.app}=rouse-activator", "--timeout=120s"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	eventually(t, "the version before serves", func() string { // the ingress may not have heard of it yet
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if a, err := call(ctx, c, f.host(), "/v1/chat/completions", chat(f.name, "red blue")); err != nil || a.status != http.StatusOK {
			return fmt.Sprintf("%d %s (%v)", a.status, a.body, err)
		}
		return ""
	})
	// It falls asleep between its requests; whichever autoscaler leads then wakes it.
	napping := create(t, "upgraded-napping", functionImage, []string{"rouse.dev/model=pico", "rouse.dev/sleep-after=1s"})
	had := podsOf(f)
	l := underLoad(t, 4, asking(f))
	naps := underLoad(t, 1, asking(napping))
	stocks := underLoad(t, 2, func(ctx context.Context, _ int64) error {
		a, err := call(ctx, c, stock.host(), "/", nil)
		if err == nil && a.status != http.StatusOK {
			err = fmt.Errorf("a stock function: status %d: %s", a.status, a.body)
		}
		return err
	})
	l.goOn(t, 50)
	if err := kustomized(t.Context(), c, "apply", root, "default", "v1"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rouse-activator", "rouse-autoscaler"} {
		rolledOut(t, c, name)
	}
	eventually(t, "what 0.1 has taken of Knative's is given back", func() string {
		out, err := c.Kubectl(t.Context(), "-n", "knative-serving", "get", "service/activator-service", "-o", "jsonpath={.spec.selector.app}")
		if err != nil || out != "activator" {
			return fmt.Sprintf("activator-service selects %s (%v)", out, err)
		}
		return ""
	})
	l.goOn(t, 200)
	naps.goOn(t, 2)
	stocks.goOn(t, 200)
	for _, failure := range slices.Concat(l.end(), naps.end(), stocks.end()) {
		t.Error(failure)
	}
	if have := podsOf(f); !slices.Equal(have, had) {
		t.Errorf("the function has the pods %v, want those of before: %v", have, had)
	}
}

// podsOf are the names of a function's pods.
func podsOf(f *function) []string {
	var names []string
	for _, p := range f.pods() {
		names = append(names, p.Metadata.Name)
	}
	slices.Sort(names)
	return names
}

// before installs the version before, in the place of this one.
func before(t *testing.T, c *cluster.Cluster) error {
	t.Helper()
	if err := kustomized(t.Context(), c, "delete", root, "default", "v1"); err != nil {
		return err
	}
	from := root
	if commit := os.Getenv(envBefore); commit != "" {
		from = filepath.Join(t.TempDir(), "before")
		if out, err := exec.CommandContext(t.Context(), "git", "-C", root, "worktree", "add", "--detach", from, commit).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		defer func() {
			if out, err := exec.CommandContext(context.Background(), "git", "-C", root, "worktree", "remove", "--force", from).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}()
	}
	tar := filepath.Join(t.TempDir(), "before.tar")
	build := exec.CommandContext(t.Context(), "go", "run", "./cmd/internal/image", "-o", tar, "--tag", "before", "activator", "autoscaler")
	build.Dir = from
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if err := c.Load(t.Context(), tar); err != nil {
		return err
	}
	if err := kustomized(t.Context(), c, "apply", from, "default", "before"); err != nil {
		return err
	}
	for _, name := range []string{"rouse-activator", "rouse-autoscaler"} {
		rolledOut(t, c, name)
	}
	return letIn(t.Context(), c)
}
