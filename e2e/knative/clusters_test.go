package knative

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// frontDoorElsewhere is a server on this machine that the cluster joins. It has no functions of its own.
type frontDoorElsewhere struct {
	url, agents string // for clients, and where agents dial
	certificate string // a file
}

// newFrontDoorElsewhere starts one that takes the cluster of that name, with its name as its token, for the functions of the pattern; args are further flags.
func newFrontDoorElsewhere(t *testing.T, name, functions string, args ...string) *frontDoorElsewhere {
	t.Helper()
	dir := t.TempDir()
	f := &frontDoorElsewhere{certificate: filepath.Join(dir, "cert.pem")}
	key := selfSigned(t, f.certificate, cluster.HostIP)
	file := writeFile(t, dir, "clusters.yaml", fmt.Appendf(nil, "name: front\nlisten: %s:0\ncertificate: %s\nkey: %s\nclusters:\n- name: %s\n  tokenHashes: [%x]\n  functions: [%q]\n",
		cluster.HostIP, f.certificate, key, name, sha256.Sum256([]byte(name)), functions))
	log := up(t, append([]string{"--clusters", file}, args...)...)
	eventually(t, "the front door", func() string { return f.ready(log) })
	return f
}

// ready reads from its log where the front door listens.
func (f *frontDoorElsewhere) ready(log string) (missing string) {
	printed, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	for line := range bytes.Lines(printed) {
		var said struct{ Msg, URL, Address string }
		if json.Unmarshal(line, &said) != nil {
			continue
		}
		switch said.Msg {
		case "ready":
			f.url = said.URL
		case "clusters may join":
			f.agents = said.Address
		}
	}
	if f.url == "" || f.agents == "" {
		return "it has only said: " + string(printed)
	}
	return ""
}

// knows returns what is missing until clients of the front door find a model.
func (f *frontDoorElsewhere) knows(ctx context.Context, model string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/v1/models/"+model, nil)
	if err != nil {
		return err.Error()
	}
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Sprintf("%s is a %d", model, resp.StatusCode)
	}
	return ""
}

func writeFile(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// selfSigned writes a certificate for an address and names, and returns the file of its key.
func selfSigned(t *testing.T, certificate, ip string, names ...string) (key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "front"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(ip)}, DNSNames: names, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, c, c, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Dir(certificate), filepath.Base(certificate), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return writeFile(t, filepath.Dir(certificate), "key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

// joining is the component of agents, whose pods are seen to be ready at once and request little CPU.
const joining = `components: [%s]
patches:
  - target: {kind: Deployment}
    patch: |
      - {op: replace, path: /spec/template/spec/containers/0/resources/requests/cpu, value: 10m}
      - {op: replace, path: /spec/template/spec/containers/0/readinessProbe/periodSeconds, value: 1}
`

// join has the cluster serve a front door until the test ends. literals are further arguments of its ConfigMap.
func join(t *testing.T, c *cluster.Cluster, f *frontDoorElsewhere, name string, literals ...string) {
	t.Helper()
	dir := t.TempDir()
	component, err := filepath.Abs(filepath.Join(root, "manifests/components/agent"))
	if err != nil {
		t.Fatal(err)
	}
	if component, err = filepath.Rel(dir, component); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "kustomization.yaml", fmt.Appendf(nil, joining, component))
	system := func(args ...string) { kubectl(t, c, append([]string{"-n", "knative-serving"}, args...)...) }
	t.Cleanup(func() {
		if t.Failed() {
			keep(t, c)
		}
		kubectl(t, c, "delete", "-k", dir, "--ignore-not-found", "--wait=false")
		system("delete", "configmap/rouse-agent", "secret/rouse-agent", "--ignore-not-found")
	})
	system("delete", "configmap/rouse-agent", "secret/rouse-agent", "--ignore-not-found") // of a run that was killed
	system(append([]string{"create", "configmap", "rouse-agent", "--from-literal=join=" + f.agents, "--from-literal=cluster=" + name}, literals...)...)
	system("create", "secret", "generic", "rouse-agent", "--from-literal=token="+name, "--from-file=ca.crt="+f.certificate)
	kubectl(t, c, "apply", "-k", dir)
	rolledOut(t, c, "rouse-agent")
}

// theClusterServesAFrontDoorElsewhere has the cluster's agents dial a front door outside. The front door wakes a
// function of the cluster and streams from it. Streams outlive their agents, deleted or killed, and the next agents
// answer requests that come meanwhile.
func theClusterServesAFrontDoorElsewhere(t *testing.T) {
	c := rouse(t) // whose pods reach this machine
	front := newFrontDoorElsewhere(t, "rack", "default/far*")
	f := slowly(t, "far", "--step-time 200ms", nil)
	join(t, c, front, "rack")
	eventually(t, "the front door knows the function", func() string { return front.knows(t.Context(), f.name) })
	if got := f.pods(); len(got) != 0 {
		t.Errorf("%d pods before the first request, want none", len(got))
	}
	f.at = "127.0.0.1" // from here on it is asked there
	stream := func(words int) (last told, err error) {
		err = completion(t.Context(), f, front.url, words, func(now told) { last = now })
		return last, err
	}
	if got, err := stream(3); err != nil || got.words != 3 || got.end != "[DONE]" {
		t.Fatalf("from zero: %+v, %v", got, err)
	}
	agents := func() (names []string) {
		for _, p := range pods(t, c, "app=rouse-agent", "knative-serving") {
			names = append(names, p.Metadata.Name)
		}
		return names
	}
	t.Run("agents are deleted", func(t *testing.T) {
		ended := begun(t.Context(), f, front.url, 60)
		kubectl(t, c, append([]string{"-n", "knative-serving", "delete", "pod", "--wait=false"}, agents()...)...)
		if got, err := stream(3); err != nil || got.end != "[DONE]" {
			t.Errorf("a request meanwhile: %+v, %v", got, err)
		}
		if err := <-ended; err != nil {
			t.Errorf("the stream through a deleted agent: %v", err)
		}
	})
	t.Run("agents are killed", func(t *testing.T) {
		rolledOut(t, c, "rouse-agent")
		ended := begun(t.Context(), f, front.url, 60)
		for _, name := range agents() {
			kill(t, c, name)
		}
		if err := <-ended; err != nil { // it continues through the next agent
			t.Errorf("the stream through a killed agent: %v", err)
		}
		if got, err := stream(3); err != nil || got.end != "[DONE]" {
			t.Errorf("the next request: %+v, %v", got, err)
		}
	})
}

// opened is the default with the component of a front door of clusters elsewhere, hurried as [hurried] is.
const opened = hurried + "components: [%s]\n"

// aFrontDoorOfOtherClusters makes the activators front doors of clusters elsewhere. A server on this machine joins one of them, and the
// requests for its model are answered by both.
func aFrontDoorOfOtherClusters(t *testing.T) {
	c := rouse(t) // whose Services this machine reaches
	overlays.Lock()
	t.Cleanup(overlays.Unlock)
	component, err := filepath.Abs(filepath.Join(root, "manifests/components/front"))
	if err != nil {
		t.Fatal(err)
	}
	system := func(args ...string) string {
		return kubectl(t, c, append([]string{"-n", "knative-serving"}, args...)...)
	}
	t.Cleanup(func() {
		if t.Failed() {
			keep(t, c)
		}
		if err := apply(context.WithoutCancel(t.Context()), c, "default"); err != nil {
			t.Error(err)
		}
		kubectl(t, c, "delete", "-f", filepath.Join(component, "join.yaml"), "--ignore-not-found")
		system("rollout", "status", "deployment/rouse-activator", "--timeout=180s")
		system("delete", "secret/rouse-clusters", "--ignore-not-found")
	})
	kubectl(t, c, "apply", "-f", filepath.Join(component, "join.yaml"))
	join := system("get", "service/rouse-join", "-o", "jsonpath={.spec.clusterIP}")
	dir := t.TempDir()
	certificate := filepath.Join(dir, "front.pem")
	const service = "rouse-fronts.knative-serving.svc"
	key := selfSigned(t, certificate, join, service)
	file := writeFile(t, dir, "clusters.yaml", fmt.Appendf(nil, `name: home
listen: ":7443"
certificate: /etc/rouse/clusters/front.pem
key: /etc/rouse/clusters/front.key
clusters:
- {name: desk, tokenHashes: [%x], functions: ["default/distant*"]}
- {name: fronts, front: true, tokenHashes: [%x], functions: ["*/*"]}
peers: {service: %s:7443, cluster: fronts, tokenFile: /etc/rouse/clusters/fronts.token, authority: /etc/rouse/clusters/front.pem}
`, sha256.Sum256([]byte("desk")), sha256.Sum256([]byte("fronts")), service))
	system("delete", "secret/rouse-clusters", "--ignore-not-found") // of a run that was killed
	system("create", "secret", "generic", "rouse-clusters", "--from-file=clusters.yaml="+file, "--from-file=front.pem="+certificate, "--from-file=front.key="+key, "--from-literal=fronts.token=fronts")
	within := func(path string) string {
		to, err := filepath.Rel(dir, path)
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	writeFile(t, dir, "kustomization.yaml", fmt.Appendf(nil, opened, within(filepath.Join(filepath.Dir(filepath.Dir(component)), "overlays/default")), "v1", within(component)))
	kubectl(t, c, "apply", "-k", dir)
	rolledOut(t, c, "rouse-activator")
	desk := up(t, "--model", "distant=pico", "--model", "distant-both=pico", "--accept-functions", "default/distant-placed", "--join", join+":7443", "--cluster", "desk", "--cluster-token-file", writeFile(t, dir, "desk.token", []byte("desk")), "--front-ca", certificate)
	joined := regexp.MustCompile(`(?m)^desk +joined +1 +\S+ +2 .*\n(fronts \(front door\) +joined +2) `)
	eventually(t, "all have found one another", func() string {
		if out, err := c.Kn(t.Context(), "rouse", "clusters"); err != nil || !joined.MatchString(out) {
			return fmt.Sprintf("kn rouse clusters: %s (%v)", out, err)
		}
		return ""
	})
	for _, p := range pods(t, c, "app=rouse-activator", "knative-serving") {
		eventually(t, p.Metadata.Name, func() string {
			at := "http://" + p.Status.PodIP + ":8012/v1/chat/completions"
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at, strings.NewReader(`{"model":"distant","messages":[{"role":"user","content":"echo hello"}]}`))
			if err != nil {
				return err.Error()
			}
			resp, err := client.Do(req)
			if err != nil {
				return err.Error()
			}
			defer resp.Body.Close()
			if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), `"hello"`) {
				return fmt.Sprintf("%s: %s (%v)", resp.Status, text, err)
			}
			return ""
		})
	}
	t.Run("a Service that runs elsewhere", func(t *testing.T) { aServiceElsewhere(t, desk) })
	t.Run("a Service here and there", func(t *testing.T) { aServiceHereAndThere(t, urlOf(t, desk)) })
}

// aServiceElsewhere makes a Service with kn that runs on the desk, whose log is given. It is ready at once and has no
// pod here. Its first request creates it there, through any activator. It is removed there with the Service.
func aServiceElsewhere(t *testing.T, log string) {
	f := create(t, "distant-placed", functionImage, []string{"rouse.dev/model=pico", "rouse.dev/memory=64Mi", "rouse.dev/clusters=rouse.dev/cluster=desk"})
	for range 6 {
		if got := f.ask("red blue"); !strings.Contains(got.body, "red blue") {
			t.Errorf("it answers %s", got.body)
		}
	}
	f.hasPods(0)
	if out, err := f.c.Kn(t.Context(), "rouse", "why", f.name); err != nil || !strings.Contains(out, "desk/") {
		t.Errorf("kn rouse why: %s (%v)", out, err)
	}
	if out, err := f.c.Kn(t.Context(), "rouse", "list"); err != nil || !regexp.MustCompile(`(?m)^(default/)?distant-placed .*`).MatchString(out) {
		t.Errorf("kn rouse list: %s (%v)", out, err)
	}
	f.remove()
	eventually(t, "it is removed on the desk", func() string {
		printed, err := os.ReadFile(log)
		if err != nil || !strings.Contains(string(printed), "a front door had a function removed") {
			return fmt.Sprintf("the desk printed %s (%v)", printed, err)
		}
		return ""
	})
}

// aServiceHereAndThere makes a Service that the desk, at url, has too, and awake: it answers, and the cluster starts no pod.
func aServiceHereAndThere(t *testing.T, url string) {
	warm, err := client.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"distant-both","messages":[{"role":"user","content":"echo hello"}]}`))
	if err != nil || warm.StatusCode != http.StatusOK {
		t.Fatalf("the desk itself: %v, %v", warm, err)
	}
	_ = warm.Body.Close()
	f := create(t, "distant-both", functionImage, []string{"rouse.dev/model=pico", "rouse.dev/sleep-after=0"})
	for range 6 {
		if got := f.ask("red blue"); !strings.Contains(got.body, "red blue") {
			t.Errorf("it answers %s", got.body)
		}
	}
	f.hasPods(0)
}

// aFrontDoorHasAFunctionCreatedHere: a function that is declared at a front door elsewhere, and runs nowhere, is made a Service of
// the cluster by its first request, and removed where the front door wants it no more. What the cluster has itself stays.
func aFrontDoorHasAFunctionCreatedHere(t *testing.T) {
	c := rouse(t) // whose pods reach this machine
	const namespace = "placed"
	kubectl(t, c, "delete", "namespace", namespace, "--ignore-not-found") // of a run that was killed
	kubectl(t, c, "create", "namespace", namespace)
	t.Cleanup(func() { kubectl(t, c, "delete", "namespace", namespace, "--wait=false") })
	kubectl(t, c, "-n", namespace, "apply", "-f", filepath.Join(root, "manifests/components/agent/accept.yaml"))
	manifest := writeFile(t, t.TempDir(), "distant.yaml", []byte(`apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: distant, namespace: placed}
spec:
  template:
    metadata:
      annotations: {rouse.dev/model: pico, rouse.dev/served-model-name: distant, rouse.dev/memory: 64Mi, rouse.dev/clusters: rouse.dev/cluster=rack, rouse.dev/remove-after: 5s, rouse.dev/sleep-after: 1s, rouse.dev/unload-after: 1s}
    spec: {containers: [{image: none}]}
`))
	front := newFrontDoorElsewhere(t, "rack", namespace+"/*", "-f", manifest)
	join(t, c, front, "rack", "--from-literal=acceptFunctions="+namespace+"/*", "--from-literal=acceptImages=engine=dev.local/rouse-function:v1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, front.url+"/v1/chat/completions", strings.NewReader(`{"model":"distant","messages":[{"role":"user","content":"echo hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), `"hello"`) {
		t.Fatalf("%s: %s (%v)", resp.Status, text, err)
	}
	if got := kubectl(t, c, "-n", namespace, "get", "ksvc/distant", "-o", "jsonpath={.metadata.annotations.clusters\\.rouse\\.dev/fronts}"); !strings.HasPrefix(got, `["front@`) || strings.Contains(got, ",") {
		t.Errorf("it is there for %s", got)
	}
	eventually(t, "it is removed", func() string { return kubectl(t, c, "-n", namespace, "get", "ksvc", "-o", "name") })
}
