package knative

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// authority signs what cert-manager would sign in a cluster that has it.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca of a test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	raw, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &key.PublicKey, key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// secret puts a certificate for the names into a Secret, as Knative wants it.
func (a *authority) secret(c *cluster.Cluster, namespace, name string, dns ...string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: dns, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	encode := func(kind string, raw []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw})
	}
	object, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]string{"name": name, "namespace": namespace},
		"data": map[string][]byte{"tls.crt": encode("CERTIFICATE", raw), "tls.key": encode("PRIVATE KEY", private), "ca.crt": encode("CERTIFICATE", a.cert.Raw)},
	})
	if err != nil {
		a.t.Fatal(err)
	}
	file := filepath.Join(a.t.TempDir(), name+".json")
	if err := os.WriteFile(file, object, 0o600); err != nil {
		a.t.Fatal(err)
	}
	if _, err := c.Kubectl(a.t.Context(), "apply", "-f", file); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() {
		_, _ = c.Kubectl(context.Background(), "-n", namespace, "delete", "secret", name) // it is not read any more
	})
}

// client trusts this authority only, and reaches the activator under a name that its certificate has.
func (a *authority) client() *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &http.Client{Timeout: within, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "kn-routing"}}}
}

// internalTLS turns Knative's encryption inside the cluster on or off. Activators
// read it when they start, Knative's own too.
func internalTLS(ctx context.Context, c *cluster.Cluster, value string) error {
	for _, step := range [][]string{
		{"patch", "configmap", "config-network", "--type", "merge", "-p", fmt.Sprintf(`{"data":{"system-internal-tls":%s}}`, value)},
		{"rollout", "restart", "deployment/rouse-activator"},
		{"rollout", "status", "deployment/rouse-activator", "--timeout=120s"},
	} {
		if out, err := c.Kubectl(ctx, append([]string{"-n", "knative-serving"}, step...)...); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

// TestInternalTLS turns system-internal-tls on. The activator serves stock functions and ours over TLS with the
// certificate of Knative's Secret, and reaches the queue-proxy of stock ones over TLS. It still serves the ports
// without TLS. Control traffic between activators and autoscaler goes over TLS. The requests go straight to an
// activator: the ingress of these tests has no TLS.
func TestInternalTLS(t *testing.T) {
	c := rouse(t)
	a := newAuthority(t)
	a.secret(c, "knative-serving", "routing-serving-certs", "kn-routing", "data-plane.knative.dev")
	a.secret(c, "default", "serving-certs", "kn-user-default", "data-plane.knative.dev")
	t.Cleanup(func() {
		if err := internalTLS(context.Background(), c, "null"); err != nil {
			t.Errorf("turn system-internal-tls off again: %v", err)
		}
		// Knative made these for each namespace with revisions; it makes no Secrets for them any more.
		if _, err := c.Kubectl(context.Background(), "delete", "certificates.networking.internal.knative.dev", "-A", "--field-selector", "metadata.name=serving-certs"); err != nil {
			t.Error(err)
		}
	})
	if err := internalTLS(t.Context(), c, `"enabled"`); err != nil {
		t.Fatal(err)
	}
	ours := create(t, "tls-ours", functionImage, lasting)
	stock := create(t, "tls-stock", helloImage, nil, "--request", "cpu=10m")
	pod := pods(t, c, "app=rouse-activator", "knative-serving")[0]
	secure, plain := a.client(), client
	for _, way := range []struct {
		base   string
		client *http.Client
	}{{"https://" + pod.Status.PodIP + ":8112", secure}, {"http://" + pod.Status.PodIP + ":8012", plain}} {
		if got, err := direct(way.client, way.base+"/v1/chat/completions", ours, chat(ours.name, "red blue")); err != nil || !strings.Contains(got, "red blue") {
			t.Errorf("%s: our function answers %q, %v", way.base, got, err)
		}
		if got, err := direct(way.client, way.base+"/", stock, nil); err != nil || got == "" {
			t.Errorf("%s: a stock function answers %q, %v", way.base, got, err)
		}
	}
	// The function was started and woken by control traffic that goes over TLS now, or not at all.
	autoscaler := pods(t, c, "app=rouse-autoscaler,rouse.dev/leader=true", "knative-serving")[0]
	for _, address := range []string{pod.Status.PodIP + ":8014", autoscaler.Status.PodIP + ":8080"} {
		conn, err := tls.Dial("tcp", address, secure.Transport.(*http.Transport).TLSClientConfig)
		if err != nil {
			t.Errorf("the control port %s: %v", address, err)
			continue
		}
		_ = conn.Close()
	}
	queue := stock.pods()[0].Status.PodIP
	conn, err := tls.Dial("tcp", queue+":8112", &tls.Config{RootCAs: secure.Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "kn-user-default"})
	if err != nil {
		t.Fatalf("the queue-proxy of the stock function speaks no TLS, so the above says nothing: %v", err)
	}
	_ = conn.Close()
}

// direct asks the activator at a URL for the function's first revision, as an ingress does.
func direct(with *http.Client, url string, f *function, body any) (string, error) {
	method, raw := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return "", err
		}
	}
	req, err := http.NewRequestWithContext(f.t.Context(), method, url, bytes.NewReader(raw))
	if err != nil {
		return "", err
	}
	asIngress(req, f)
	resp, err := with.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return string(text), err
}

// asIngress adds the header of the ingress to a request: the function's first revision, whichever host is asked.
func asIngress(req *http.Request, f *function) {
	req.Host = f.host()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Knative-Serving-Namespace", "default")
	req.Header.Set("Knative-Serving-Revision", f.name+"-00001")
}
