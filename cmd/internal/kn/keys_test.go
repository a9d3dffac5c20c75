package kn_test

import (
	"encoding/base64"
	"strings"
	"testing"

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
	c.deny = func(verb, resource, _ string) bool { return verb == "update" && resource == "secrets" }
	c.fails([]string{"you may not update secrets (rouse-keys) in the namespace knative-serving"}, "keys", "create", "eve")
}
