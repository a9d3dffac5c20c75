package knative

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// pageOverlay is the component of the page, whose pod is seen to be ready at once and requests little CPU.
const pageOverlay = `components: [%s]
patches:
  - target: {kind: Deployment}
    patch: |
      - {op: replace, path: /spec/template/spec/containers/0/readinessProbe/periodSeconds, value: 1}
`

// TestPage has people sign in at the page in the cluster by an OpenID provider, in a real Chromium, through a proxy
// that terminates TLS. They see and control the cluster's functions. cmd/internal/page/test/signin.mjs has their steps.
func TestPage(t *testing.T) {
	parallel(t)
	c := rouse(t)
	chromium, err := exec.LookPath("chromium")
	modules := filepath.Join(root, "cmd/internal/page/node_modules")
	if _, missing := os.Stat(modules); err != nil || missing != nil {
		t.Skip("there is no chromium, or nothing to drive it with: apt-get install chromium, make page")
	}
	create(t, "signed-in", functionImage, quick)
	dir := t.TempDir()
	issuer := fmt.Sprintf("https://%s:%d/", cluster.HostIP, freePort(t))
	certificate := filepath.Join(dir, "ca.crt")
	key := selfSigned(t, certificate, cluster.HostIP)
	var at http.Handler // the handler behind the ingress
	ingress := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { at.ServeHTTP(w, r) }))
	ingress.Config.ErrorLog = log.New(io.Discard, "", 0) // the browser reports each time that it does not know the certificate's authority
	ingress.StartTLS()
	t.Cleanup(ingress.Close)
	for _, args := range [][]string{
		{"create", "configmap", "rouse-page", "--from-literal=url=" + ingress.URL, "--from-literal=issuer=" + issuer, "--from-literal=clientID=rouse", "--from-literal=allowEmails=test-user@zitadel.ch"},
		{"create", "secret", "generic", "rouse-page", "--from-literal=client-secret=of a test", "--from-file=" + certificate},
	} {
		kubectl(t, c, append([]string{"-n", "knative-serving"}, args...)...)
		t.Cleanup(func() { kubectl(t, c, "-n", "knative-serving", "delete", args[1], "rouse-page", "--ignore-not-found") })
	}
	component, err := filepath.Abs(filepath.Join(root, "manifests/components/page"))
	if err == nil {
		component, err = filepath.Rel(dir, component)
	}
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "kustomization.yaml", fmt.Appendf(nil, pageOverlay, component))
	kubectl(t, c, "apply", "-k", dir)
	t.Cleanup(func() { kubectl(t, c, "delete", "-k", dir, "--ignore-not-found", "--wait=false") })
	kubectl(t, c, "-n", "knative-serving", "rollout", "status", "deployment/rouse-page", "--timeout=180s")
	service, err := url.Parse("http://" + kubectl(t, c, "-n", "knative-serving", "get", "service/rouse-page", "-o", "jsonpath={.spec.clusterIP}"))
	if err != nil {
		t.Fatal(err)
	}
	at = &httputil.ReverseProxy{FlushInterval: -1, ErrorLog: ingress.Config.ErrorLog, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(service)
		r.Out.Host = r.In.Host
	}}
	serveProvider(t, issuer, ingress.URL+"/rouse/signin/callback", certificate, key)
	said, err := exec.CommandContext(t.Context(), "node", filepath.Join(root, "cmd/internal/page/test/signin.mjs"), chromium, ingress.URL, issuer, "default/signed-in-00001").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s\n%s", err, said, kubectl(t, c, "-n", "knative-serving", "logs", "deployment/rouse-page"))
	}
}

// serveProvider runs an OpenID provider on this machine until the test ends.
func serveProvider(t *testing.T, issuer, redirect, certificate, key string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "oidc")
	if out, err := exec.Command("go", "build", "-C", filepath.Join(root, "e2e/oidc"), "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the provider: %v\n%s", err, out)
	}
	p := exec.Command(program, "--issuer", issuer, "--redirect", redirect, "--secret", "of a test", "--cert", certificate, "--key", key)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // it asks only whether it is there
	eventually(t, "the provider", func() string {
		resp, err := client.Get(issuer + ".well-known/openid-configuration")
		if err != nil {
			return err.Error()
		}
		resp.Body.Close()
		return ""
	})
}
