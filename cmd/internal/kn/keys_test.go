package kn_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/config/apikey"
)

const (
	keysPath  = "/api/v1/namespaces/knative-serving/secrets/rouse-keys"
	emptyKeys = "apiVersion: v1\nkind: Secret\nmetadata: {name: rouse-keys, namespace: knative-serving}"
)

// declared is the Secret's content.
func (c *fakeCluster) declared() *apikey.File {
	c.t.Helper()
	raw, err := base64.StdEncoding.DecodeString(nested(c.object(keysPath), "data", "keys.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	f, err := apikey.Parse(raw)
	if err != nil {
		c.t.Fatal(err)
	}
	return f
}

// TestKeys makes, lists and revokes keys, while somebody else makes another.
func TestKeys(t *testing.T) {
	c := newFakeCluster(t)
	c.fails([]string{"rouse-keys", "kubectl apply -k"}, "keys", "list")
	c.put(emptyKeys)
	if out, err := c.run("keys", "list"); err != nil || out != "No keys in Secret knative-serving/rouse-keys: make one with kn rouse keys create NAME\n" {
		t.Errorf("list: %v, printed %q", err, out)
	}
	out, err := c.run("keys", "create", "ann", "--tenant", "acme", "--requests-per-minute", "60")
	if err != nil {
		t.Fatal(err)
	}
	key, rest, _ := strings.Cut(out, "\n")
	if rest != "This is the key of ann: it is not shown again. Clients send it as a bearer token.\n" {
		t.Errorf("create printed %q after the key", rest)
	}
	if got := c.declared().Keys; len(got) != 1 || got[0].Hash != apikey.Hash(key) || got[0].Tenant != "acme" {
		t.Errorf("the Secret has %+v, want the hash of the key of ann", got)
	}
	c.meanwhile = func() {
		c.meanwhile = nil
		if _, err := c.run("keys", "create", "bob"); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.run("keys", "create", "anonymous", "--model", "tiny"); err != nil {
		t.Fatal(err)
	}
	if got := c.declared().Keys; len(got) != 3 || got[1].Name != "bob" || got[2].Name != apikey.Anonymous || got[2].Hash != "" {
		t.Errorf("the Secret has %+v, want ann, bob and anonymous", got)
	}
	c.fails([]string{"a key ann already"}, "keys", "create", "ann")
	c.fails([]string{"no key has that name", "kn rouse keys list"}, "keys", "revoke", "eve")
	if _, err := c.run("keys", "revoke", "ann"); err != nil {
		t.Fatal(err)
	}
	want := `NAME        TENANT   MODELS   REQUESTS/MIN   TOKENS/MIN   AT ONCE   EXPIRES
bob         bob      all      -              -            -         never
anonymous   -        tiny     -              -            -         never
`
	if out, err := c.run("keys", "list"); err != nil || out != want {
		t.Errorf("list: %v, printed\n%swant\n%s", err, out, want)
	}
	if _, err := c.run("keys", "set", "bob", "--tokens-per-day", "1000", "--gpu-seconds-per-month", "60"); err != nil {
		t.Fatal(err)
	}
	if out, _ := c.run("keys", "list"); !strings.Contains(out, "EXPIRES   BUDGETS\n") || !strings.Contains(out, "never     1000 tokens/day, 60 GPU-s/month\n") {
		t.Errorf("list with budgets printed\n%s", out)
	}
	c.deny = func(verb, resource, _ string) bool { return verb == "update" && resource == "secrets" }
	c.fails([]string{"you may not update secrets (rouse-keys) in the namespace knative-serving"}, "keys", "create", "eve")
}

// TestKeysOfThePage makes a key on the page with the person's own rights.
func TestKeysOfThePage(t *testing.T) {
	c, _ := populated(t)
	c.put(emptyKeys)
	url, secret := c.ui()
	bearer := []string{"Authorization", "Bearer " + secret}
	for name, header := range map[string][]string{"no token": nil, "another page": append([]string{"Origin", "https://evil.example"}, bearer...)} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
			if status, _, body := ask(t, method, url+admin.PathKeys, header...); status != http.StatusUnauthorized && status != http.StatusForbidden {
				t.Errorf("%s, %s: %d %s", name, method, status, body)
			}
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+admin.PathKeys, strings.NewReader(`{"name":"ann","concurrent":2}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(bearer[0], bearer[1])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var made struct{ Key string }
	if err := json.NewDecoder(resp.Body).Decode(&made); err != nil || resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatal(err, resp.Header)
	}
	if got := c.declared().Keys; len(got) != 1 || got[0].Hash != apikey.Hash(made.Key) || got[0].Concurrent != 2 {
		t.Errorf("the Secret has %+v", got)
	}
	c.deny = func(_, resource, _ string) bool { return resource == "secrets" }
	if status, _, body := ask(t, http.MethodGet, url+admin.PathKeys, bearer...); status != http.StatusInternalServerError || !strings.Contains(body, "you may not get secrets") {
		t.Errorf("without the right: %d %s", status, body)
	}
}
