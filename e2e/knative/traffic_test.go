package knative

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

// TestTrafficSplitAndRollback moves a tenth of the traffic to a new revision, at
// the own host and at the front door, and takes it back.
func TestTrafficSplitAndRollback(t *testing.T) {
	parallel(t)
	f := create(t, "split", functionImage, lasting)
	f.ask("red blue")
	if _, err := f.kn("update", functionImage, []string{"rouse.dev/priority=1"}, "--traffic", "split-00001=90,@latest=10"); err != nil {
		t.Fatal(err)
	}
	doors := map[string]func() (answer, error){
		"own host": func() (answer, error) {
			return call(t.Context(), f.c, f.host(), "/v1/chat/completions", chat(f.name, "red blue"))
		},
		"front door": func() (answer, error) {
			return frontDoor(t, f.c, "/v1/chat/completions", chat(f.name, "red blue"))
		},
	}
	for name, door := range doors {
		eventually(t, "the split at the "+name, func() string { // its routes follow a moment later
			a, err := door()
			if err != nil || a.status != http.StatusOK {
				t.Fatalf("during the split: %d %s (%v)", a.status, a.body, err)
			}
			if servedBy(a) != "split-00002" {
				return "no answer of the new revision"
			}
			return ""
		})
		got := map[string]int{}
		const n = 300
		for range n {
			a, err := door()
			if err != nil || a.status != http.StatusOK {
				t.Fatalf("during the split: %d %s (%v)", a.status, a.body, err)
			}
			got[servedBy(a)]++
		}
		// 30 expected of a binomial distribution; 8 and 60 are more than four standard deviations away.
		if fresh := got["split-00002"]; fresh < 8 || fresh > 60 || got["split-00001"] != n-fresh {
			t.Errorf("%s: %v of %d requests, want about a tenth at the new revision", name, got, n)
		}
	}
	if _, err := f.c.Kn(t.Context(), "service", "update", f.name, "--traffic", "split-00001=100"); err != nil {
		t.Fatal(err)
	}
	for name, door := range doors {
		run := 0
		eventually(t, "the rollback at the "+name, func() string {
			a, err := door()
			if err != nil || a.status != http.StatusOK {
				t.Fatalf("during the rollback: %d %s (%v)", a.status, a.body, err)
			}
			if run++; servedBy(a) != "split-00001" {
				run = 0
			}
			if run < 10 {
				return "fewer than 10 answers in a row from the old revision"
			}
			return ""
		})
	}
}

// servedBy is the revision whose instance answered.
func servedBy(a answer) string {
	revision, _, _ := strings.Cut(a.header.Get("X-Rouse-Instance"), "-deployment-")
	return revision
}

// TestStockBesideOurs runs a function of Knative's own class, from zero and warm, through our activator.
func TestStockBesideOurs(t *testing.T) {
	parallel(t)
	f := create(t, "stock", helloImage, []string{"autoscaling.knative.dev/window=6s"})
	for range 2 {
		a, err := call(t.Context(), f.c, f.host(), "/", nil)
		if err != nil || a.status != http.StatusOK || !strings.HasPrefix(a.body, "hello") {
			t.Fatalf("a stock function answers %d %s (%v)", a.status, a.body, err)
		}
		f.hasPods(0)
	}
}

// mapped gives a function a domain of its own.
const mapped = `apiVersion: networking.internal.knative.dev/v1alpha1
kind: ClusterDomainClaim
metadata: {name: mine.example.org}
spec: {namespace: default}
---
apiVersion: serving.knative.dev/v1beta1
kind: DomainMapping
metadata: {name: mine.example.org, namespace: default}
spec: {ref: {apiVersion: serving.knative.dev/v1, kind: Service, name: mapped}}
`

// TestADomainOfAFunction checks that a function answers at the host of a DomainMapping, from zero too. Knative may send
// the request by way of the function's own host. Or it sends it, with domainmapping-direct-route-traffic, straight to
// the revision with the client's host.
func TestADomainOfAFunction(t *testing.T) {
	parallel(t)
	c := rouse(t)
	f := create(t, "mapped", functionImage, quick)
	flag := func(ctx context.Context, value string) {
		if out, err := c.Kubectl(ctx, "-n", "knative-serving", "patch", "configmap", "config-features", "--type=merge", "-p", `{"data":{"domainmapping-direct-route-traffic":`+value+`}}`); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	file := writeFile(t, t.TempDir(), "mapped.yaml", []byte(mapped))
	t.Cleanup(func() {
		flag(context.WithoutCancel(t.Context()), "null")
		kubectl(t, c, "delete", "-f", file, "--ignore-not-found")
	})
	kubectl(t, c, "apply", "-f", file)
	f.at = "mine.example.org"
	for _, to := range []struct{ flag, service string }{{`"disabled"`, f.name}, {`"enabled"`, f.name + "-00001"}} {
		flag(t.Context(), to.flag)
		eventually(t, "the way to "+to.service, func() string {
			got := kubectl(t, c, "get", "king/mine.example.org", "--ignore-not-found", "-o", "jsonpath={.spec.rules[0].http.paths[0].splits[0].serviceName}")
			if got != to.service {
				return "the ingress sends to " + got
			}
			return ""
		})
		kubectl(t, c, "wait", "domainmapping/mine.example.org", "--for=condition=Ready", "--timeout=180s")
		f.hasPods(0)
		f.ask("red blue") // held at zero
		f.ask("apple pear")
	}
}
