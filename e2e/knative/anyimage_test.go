package knative

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// Images that have no function in them.
const (
	anyServer = "dev.local/anyserver:v1"
	anyVLLM   = "dev.local/vllm-openai:v1" // a model server's, by its own name
)

// injecting is the component, small and quick to be ready.
const injecting = `components: [%s]
patches:
  - target: {kind: Deployment}
    patch: |
      - {op: replace, path: /spec/replicas, value: 1}
      - {op: replace, path: /spec/template/spec/containers/0/resources/requests/cpu, value: 10m}
      - {op: replace, path: /spec/template/spec/containers/0/readinessProbe/periodSeconds, value: 1}
`

// inject installs the component any-image, and takes it away at the end.
func inject(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	dir := t.TempDir()
	component, err := filepath.Abs(filepath.Join(root, "manifests/components/any-image"))
	if err != nil {
		t.Fatal(err)
	}
	if component, err = filepath.Rel(dir, component); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), fmt.Appendf(nil, injecting, component), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		_, first := c.Kubectl(ctx, "delete", "mutatingwebhookconfiguration", "rouse-injector", "--ignore-not-found")
		if _, err := c.Kubectl(ctx, "delete", "-k", dir, "--ignore-not-found"); err != nil || first != nil {
			t.Errorf("take the component away: %v, %v", first, err)
		}
	})
	for _, step := range [][]string{
		{"apply", "-k", dir},
		{"-n", "knative-serving", "rollout", "status", "deployment/rouse-injector", "--timeout=180s"},
		{"wait", "mutatingwebhookconfiguration/rouse-injector", "--for=jsonpath={.webhooks[0].rules[0].resources[0]}=pods", "--timeout=180s"},
	} {
		if out, err := c.Kubectl(t.Context(), step...); err != nil {
			t.Fatalf("kubectl %s: %v: %s", strings.Join(step, " "), err, out)
		}
	}
}

// TestAnyImage has functions of images without a function in them. It runs alone: while the injector is away no function gets a pod.
func TestAnyImage(t *testing.T) {
	c := rouse(t)
	inject(t, c)
	t.Run("a model server", aModelServersImage)
	t.Run("any server", anyServersImage)
	t.Run("two pods", twoPodsOfAnyImage)
	t.Run("proof", proofOfAPod)
	t.Run("without the injector", withoutTheInjector)
}

// aModelServersImage is the image of a model server, as it is published, and what it takes: nothing but the model.
func aModelServersImage(t *testing.T) {
	f := create(t, "any-vllm", anyVLLM, []string{"rouse.dev/model=sim/llama-8b", "rouse.dev/sleep-after=4s", "rouse.dev/memory=64Mi"},
		"--arg=--max-model-len", "--arg=2048", "--env", "VLLMSIM_FLAGS=--load-time 0")
	ask := func() {
		t.Helper()
		a, err := call(t.Context(), f.c, f.host(), "/v1/completions", map[string]any{"model": f.name, "prompt": "hello", "max_tokens": 8})
		if err != nil || a.status != http.StatusOK {
			t.Fatalf("it answers %d %s (%v)", a.status, a.body, err)
		}
	}
	ask()
	f.hasState("asleep")
	before := f.pods()
	ask()
	if after := f.pods(); len(before) != 1 || len(after) != 1 || before[0].Metadata.Name != after[0].Metadata.Name {
		t.Errorf("the pods were %v and are %v: want one, that slept and was woken", before, after)
	}
}

// anyServersImage is a server that knows nothing of models, with a port, a user and probes of its own.
func anyServersImage(t *testing.T) {
	f := create(t, "any-server", anyServer, []string{"rouse.dev/runtime=http", "rouse.dev/sleep-after=4s"},
		"--cmd", "/anyserver", "--arg", "words", "--port", "8085", "--user", "1234",
		"--probe-liveness", "exec:/anyserver,check", "--probe-liveness-opts", "periodseconds=1,failurethreshold=1", "--probe-readiness", "http::8085:/ready")
	a, err := call(t.Context(), f.c, f.host(), "/some/path", map[string]string{"a": "b"}, "Cookie", "c=1")
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("held at zero, a request is answered with %d %s (%v)", a.status, a.body, err)
	}
	for _, want := range []string{"POST /some/path over HTTP/1.1", "user 1234", `args ["words"]`, `{"a":"b"}`} {
		if !strings.Contains(a.body, want) {
			t.Errorf("the server says %q, want %q in it", a.body, want)
		}
	}
	f.hasState("asleep")
	upgraded(t, f) // which wakes it
	f.hasState("asleep")
	overHTTP2(t, f)
	live := f.pods()
	if len(live) != 1 {
		t.Fatalf("%d pods, want the first", len(live))
	}
	if out, err := f.c.Kubectl(t.Context(), "get", "pod", live[0].Metadata.Name, "-o", "jsonpath={.status.containerStatuses[*].restartCount}"); err != nil || strings.Trim(out, "0 ") != "" {
		t.Errorf("containers were started anew (%v): %s; want that a probe passes while the server sleeps", err, out)
	}
}

// proofOfAPod is mounted in the function's container only, also of an image that has the function, and the autoscaler may have it checked.
func proofOfAPod(t *testing.T) {
	f := create(t, "any-proof", functionImage, []string{"rouse.dev/model=pico"})
	f.ask("proven")
	live := f.pods()
	if len(live) != 1 {
		t.Fatalf("%d pods, want one", len(live))
	}
	out, err := f.c.Kubectl(t.Context(), "get", "pod", live[0].Metadata.Name,
		"-o", `jsonpath={.spec.containers[?(@.name=="user-container")].volumeMounts[*].name} of {.spec.volumes[?(@.name=="rouse-proof")].projected.sources[*].serviceAccountToken.audience}; {.spec.containers[?(@.name=="queue-proxy")].volumeMounts[*].name}`)
	if err != nil || strings.Count(out, "rouse-proof") != 1 || !strings.Contains(out, "rouse-proof of rouse-autoscaler;") {
		t.Errorf("mounted is %q (%v), want the proof, and in the function's container alone", out, err)
	}
	const autoscaler = "system:serviceaccount:knative-serving:rouse-autoscaler"
	if out, err := f.c.Kubectl(t.Context(), "auth", "can-i", "create", "tokenreviews.authentication.k8s.io", "--as", autoscaler); err != nil || !strings.Contains(out, "yes") {
		t.Errorf("the autoscaler may have a proof checked: %q (%v), want yes", out, err)
	}
}

// upgraded talks over a connection that was upgraded.
func upgraded(t *testing.T, f *function) {
	t.Helper()
	at, err := url.Parse(f.c.IngressURL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), "80")))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /echo HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", f.host())
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("an upgrade is answered with %+v (%v)", resp, err)
	}
	for _, word := range []string{"one\n", "two\n"} {
		fmt.Fprint(conn, word)
		if line, err := from.ReadString('\n'); err != nil || line != word {
			t.Fatalf("over the upgraded connection came %q (%v), want %q", line, err, word)
		}
	}
}

// overHTTP2 asks the activator as an ingress does for a port that is called h2c.
func overHTTP2(t *testing.T, f *function) {
	t.Helper()
	ready := pods(t, f.c, "app=rouse-activator", "knative-serving")
	if len(ready) == 0 {
		t.Fatal("there is no activator")
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	h2c := &http.Client{Timeout: within, Transport: &http.Transport{Protocols: &protocols}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+net.JoinHostPort(ready[0].Status.PodIP, "8013")+"/rpc", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	asIngress(req, f)
	resp, err := h2c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), "POST /rpc over HTTP/2.0") || resp.Trailer.Get("X-End") != "whole" {
		t.Errorf("over HTTP/2 it answers %d %s, trailer %v (%v)", resp.StatusCode, text, resp.Trailer, err)
	}
}

// withoutTheInjector: nobody but functions notices that it is away.
func withoutTheInjector(t *testing.T) {
	c := rouse(t)
	for _, step := range [][]string{
		{"-n", "knative-serving", "scale", "deployment/rouse-injector", "--replicas=0"},
		{"-n", "knative-serving", "wait", "pods", "-l", "app=rouse-injector", "--for=delete", "--timeout=180s"},
	} {
		if out, err := c.Kubectl(t.Context(), step...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	stock := create(t, "any-stock", helloImage, nil)
	if a, err := call(t.Context(), c, stock.host(), "/", nil); err != nil || a.status != http.StatusOK {
		t.Errorf("a stock function is answered with %d %s (%v)", a.status, a.body, err)
	}
	f := create(t, "any-later", anyServer, []string{"rouse.dev/runtime=http"}, "--cmd", "/anyserver")
	answered := make(chan error, 1) // one request's
	go func() {
		a, err := call(t.Context(), c, f.host(), "/", nil)
		if err == nil && a.status != http.StatusOK {
			err = fmt.Errorf("status %d: %s", a.status, a.body)
		}
		answered <- err
	}()
	eventually(t, "the pod that the API server refuses", func() string {
		out, err := c.Kubectl(t.Context(), "get", "events", "--field-selector", "reason=FailedCreate", "-o", "jsonpath={.items[*].message}")
		if err != nil || !strings.Contains(out, "functions.rouse.dev") {
			return out
		}
		return ""
	})
	if out, err := c.Kubectl(t.Context(), "-n", "knative-serving", "scale", "deployment/rouse-injector", "--replicas=1"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := <-answered; err != nil {
		t.Errorf("the request that was held while there was no injector: %v", err)
	}
}
