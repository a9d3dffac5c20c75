package knative

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// The class and the image of every function here.
const (
	class         = "gpu.autoscaling.rouse.dev"
	functionImage = "dev.local/rouse-function:v1"
	helloImage    = cluster.HelloImage
	domain        = "example.com"
)

// within is how long anything may take that a test waits for. Tests fail by it,
// and measure nothing.
const within = 3 * time.Minute

// function is a Knative Service that a test made.
type function struct {
	t    *testing.T
	c    *cluster.Cluster
	name string
	in   string // namespace; "": default
	at   string // the host that requests name; "": its own
}

// namespace is where the function is.
func (f *function) namespace() string { return cmp.Or(f.in, "default") }

// create makes a function with kn, as its users do, and removes it at the end.
// annotations are "key=value" of the revision.
func create(t *testing.T, name, image string, annotations []string, more ...string) *function {
	t.Helper()
	return createIn(t, "", name, image, annotations, more...)
}

// createIn is create in a namespace.
func createIn(t *testing.T, in, name, image string, annotations []string, more ...string) *function {
	t.Helper()
	c := rouse(t)
	f := &function{t: t, c: c, name: name, in: in}
	_, _ = c.Kn(t.Context(), "service", "delete", name, "-n", f.namespace()) // of a run that was killed; usually there is none
	t.Cleanup(f.remove)
	if _, err := f.kn("create", image, annotations, more...); err != nil {
		t.Fatalf("kn service create %s: %v", name, err)
	}
	return f
}

// kn runs kn service create or update.
func (f *function) kn(verb, image string, annotations []string, more ...string) (string, error) {
	args := []string{"service", verb, f.name, "-n", f.namespace(), "--image", image, "--wait-timeout", "300",
		"--wait-window", "100"} // a pod may find no node at first: the tests share a small one, and sleepers make room
	if image != helloImage {
		args = append(args, "--annotation-revision", "autoscaling.knative.dev/class="+class)
		if verb == "create" {
			args = append(args, "--scale-init", "0")
		}
	}
	for _, a := range annotations {
		args = append(args, "--annotation-revision", a)
	}
	return f.c.Kn(f.t.Context(), append(args, more...)...)
}

func (f *function) remove() {
	if f.t.Failed() {
		keep(f.t, f.c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if _, err := f.c.Kn(ctx, "service", "delete", f.name, "-n", f.namespace()); err != nil && !strings.Contains(err.Error(), "not found") {
		f.t.Logf("remove %s: %v", f.name, err)
	}
}

// keep collects the files that help to understand a failure.
func keep(t *testing.T, c *cluster.Cluster) {
	dir := filepath.Join(os.TempDir(), "rouse-e2e", strings.ReplaceAll(t.Name(), "/", "_"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Collect(ctx, dir); err != nil {
		t.Logf("collect logs: %v", err)
	}
	t.Logf("logs, events and states of pods are in %s", dir)
}

// host is the host of the function's requests.
func (f *function) host() string { return cmp.Or(f.at, f.name+"."+f.namespace()+"."+domain) }

// pods are the function's pods that are not on their way out.
func (f *function) pods() []pod {
	f.t.Helper()
	return pods(f.t, f.c, "serving.knative.dev/service="+f.name, f.namespace())
}

// states are those of the function's instances, as kn rouse shows them.
func (f *function) states() []string {
	f.t.Helper()
	out, err := f.c.Kn(f.t.Context(), "rouse", "describe", f.name, "-n", f.namespace(), "-o", "json")
	if err != nil {
		f.t.Logf("kn rouse describe %s: %v", f.name, err)
		return nil
	}
	var view struct {
		Revisions []struct {
			Function struct {
				Instances []struct{ State string }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &view); err != nil {
		f.t.Fatalf("kn rouse describe %s -o json prints %q: %v", f.name, out, err)
	}
	states := []string{}
	for _, r := range view.Revisions {
		for _, i := range r.Function.Instances {
			states = append(states, i.State)
		}
	}
	return states
}

// pod is the part of a pod that tests read.
type pod struct {
	Metadata struct {
		Name              string            `json:"name"`
		Labels            map[string]string `json:"labels"`
		DeletionTimestamp string            `json:"deletionTimestamp"`
	} `json:"metadata"`
	Status struct {
		Phase string `json:"phase"`
		PodIP string `json:"podIP"`
	} `json:"status"`
}

func pods(t *testing.T, c *cluster.Cluster, selector, namespace string) []pod {
	t.Helper()
	var list struct {
		Items []pod `json:"items"`
	}
	if err := get(t.Context(), c, "/api/v1/namespaces/"+namespace+"/pods?labelSelector="+url.QueryEscape(selector), &list); err != nil {
		t.Fatalf("list pods: %v", err)
	}
	return slices.DeleteFunc(list.Items, func(p pod) bool { return p.Metadata.DeletionTimestamp != "" })
}

// get reads the JSON that the API server has at a path.
func get(ctx context.Context, c *cluster.Cluster, path string, into any) error {
	kube, err := c.Client()
	if err != nil {
		return err
	}
	raw, err := kube.CoreV1().RESTClient().Get().RequestURI(path).DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// hurry ends pods that are terminating, which would otherwise wait for requests that never come. It reports whether no
// pod is left.
func hurry(ctx context.Context, c *cluster.Cluster, selector string) bool {
	kube, err := c.Client()
	if err != nil {
		return false
	}
	all, err := kube.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return false
	}
	for _, p := range all.Items {
		if since := p.DeletionGracePeriodSeconds; since != nil && *since > 1 {
			_ = kube.CoreV1().Pods("default").Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
		}
	}
	return len(all.Items) == 0
}

// eventually waits until check returns "". Other results say what is still missing.
func eventually(t *testing.T, what string, check func() string) {
	t.Helper()
	deadline := time.Now().Add(within)
	for pause := 100 * time.Millisecond; ; pause = min(pause*5/4, time.Second) { // a check is often a process, and processors are few
		missing := check()
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: after %v still: %s", what, within, missing)
		}
		select {
		case <-time.After(pause):
		case <-t.Context().Done():
			t.Fatalf("%s: %s", what, missing)
		}
	}
}

// hasState waits until the function's instances are in exactly these states.
func (f *function) hasState(want ...string) {
	f.t.Helper()
	eventually(f.t, "states of "+f.name, func() string {
		if got := f.states(); strings.Join(got, " ") != strings.Join(want, " ") {
			return fmt.Sprintf("instances are %v, want %v", got, want)
		}
		return ""
	})
}

// hasPods waits until the function has n pods.
func (f *function) hasPods(n int) {
	f.t.Helper()
	eventually(f.t, "pods of "+f.name, func() string {
		if got := len(f.pods()); got != n {
			return fmt.Sprintf("%d pods, want %d", got, n)
		}
		return ""
	})
}

// client reaches the ingress. One for all: connections are kept.
var client = &http.Client{Timeout: 2 * within, Transport: &http.Transport{MaxIdleConnsPerHost: 256}}

// answer is a response, read whole.
type answer struct {
	status int
	header http.Header
	body   string
}

// call sends a JSON body to a host at the ingress.
func call(ctx context.Context, c *cluster.Cluster, host, path string, body any, header ...string) (answer, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	method := http.MethodPost
	if body == nil {
		method, raw = http.MethodGet, nil
	}
	req, err := http.NewRequestWithContext(ctx, method, c.IngressURL+path, bytes.NewReader(raw))
	if err != nil {
		return answer{}, err
	}
	req.Host = host
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text)}, err
}

// chat is a body for /v1/chat/completions that pico answers with the words.
func chat(model, words string, more ...func(map[string]any)) map[string]any {
	body := map[string]any{"model": model, "temperature": 0, "max_tokens": 40,
		"messages": []map[string]string{{"role": "user", "content": "echo " + words}}}
	for _, m := range more {
		m(body)
	}
	return body
}

// ask sends a chat to the function's own host and fails the test unless it is answered.
func (f *function) ask(words string) answer {
	f.t.Helper()
	a, err := call(f.t.Context(), f.c, f.host(), "/v1/chat/completions", chat(f.name, words))
	if err != nil || a.status != http.StatusOK {
		f.t.Fatalf("chat with %s: status %d, %v: %s", f.name, a.status, err, a.body)
	}
	return a
}

// serveNode serves h at an address of this machine that the pods of the cluster reach,
// until the test ends or the server is closed.
func serveNode(t *testing.T, c *cluster.Cluster, h http.Handler) (address string, server *http.Server) {
	t.Helper()
	toNode, err := net.Dial("udp", net.JoinHostPort(cluster.NodeIP, "9")) // it sends nothing, and shows our own address
	if err != nil {
		t.Fatal(err)
	}
	defer toNode.Close()
	host, _, err := net.SplitHostPort(toNode.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	server = &http.Server{Handler: h, ReadHeaderTimeout: within}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String(), server
}
