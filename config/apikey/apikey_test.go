package apikey

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParse(t *testing.T) {
	sum := Hash("k")
	for _, tc := range []struct{ name, file, err string }{
		{"whole", "keys:\n- name: a\n  hash: " + sum + "\n  tenant: t\n  models: [\"qwen*\"]\n  requestsPerMinute: 5\n  tokensPerMinute: 100\n  concurrent: 2\n  maxPriority: 3\n  serviceTiers: [priority]\n  expires: 2030-01-02T03:04:05Z\nissuers:\n- url: https://login.example.com\n  audience: rouse\n", ""},
		{"none", "keys: []\n", ""},
		{"empty", " \n", "is empty"},
		{"cut off in its comment", "# Who may use the", "is empty"},
		{"not YAML", "keys: [", "the file of keys: "},
		{"two documents", "keys: []\n---\nkeys: []\n", "a second document"},
		{"a name that is a number", "keys:\n- {name: 7, hash: " + sum + "}\n", "keys.name is a JSON number: want a string"},
		{"a key of a map that is none", "keys: []\n? [a]\n: b\n", "the file of keys"},
		{"a field twice", "keys: []\nkeys: []\n", "already"},
		{"a limit that is a text", "keys:\n- {name: a, hash: " + sum + ", concurrent: many}\n", "keys.concurrent is a JSON string: want a whole number"},
		{"unknown field", "keys:\n- name: a\n  hash: " + sum + "\n  model: x\n", `unknown field "model"`},
		{"no name", "keys:\n- hash: " + sum + "\n", "key 1: it has no name"},
		{"a blank in a name", "keys:\n- name: a b\n  hash: " + sum + "\n", "has a blank"},
		{"same name", "keys:\n- {name: a, hash: " + sum + "}\n- {name: a, hash: " + Hash("l") + "}\n", "two keys are called a"},
		{"same hash", "keys:\n- {name: a, hash: " + sum + "}\n- {name: b, hash: " + strings.ToUpper(sum) + "}\n", "a and b have the same hash"},
		{"a key as its own hash", "keys:\n- {name: a, hash: rouse-abc}\n", "is no SHA-256 sum"},
		{"no hash", "keys:\n- {name: a}\n", "is no SHA-256 sum"},
		{"anonymous", "keys:\n- {name: anonymous, models: [m], requestsPerMinute: 5, concurrent: 2}\n", ""},
		{"anonymous with a hash", "keys:\n- {name: anonymous, hash: " + sum + "}\n", "has a hash"},
		{"anonymous with priority", "keys:\n- {name: anonymous, maxPriority: 1}\n", "want models and limits only"},
		{"anonymous of a tenant", "keys:\n- {name: anonymous, tenant: t}\n", "want models and limits only"},
		{"bad pattern", "keys:\n- {name: a, hash: " + sum + ", models: ['[']}\n", "is no pattern"},
		{"negative", "keys:\n- {name: a, hash: " + sum + ", concurrent: -1}\n", "a limit is negative"},
		{"priority", "keys:\n- {name: a, hash: " + sum + ", maxPriority: 9}\n", "want 0 to 8"},
		{"issuer without TLS", "keys: []\nissuers:\n- {url: http://login.example.com, audience: a}\n", "want https"},
		{"issuer with a fragment, which would be another one's tenant", "keys: []\nissuers:\n- {url: 'https://x.example#a', audience: a}\n", "without a query and a fragment"},
		{"issuer with a blank", "keys: []\nissuers:\n- {url: 'https://x.example/a b', audience: a}\n", "has a blank"},
		{"issuer with a name that no tenant can have", "keys: []\nissuers:\n- {url: 'https://x.example/" + strings.Repeat("a", 120) + "', audience: a}\n", "want at most 128"},
		{"tenants", "keys: []\nissuers:\n- {url: https://x.example, audience: a, tenants: {acme: acme}}\n", ""},
		{"a tenant without a name", "keys: []\nissuers:\n- {url: https://x.example, audience: a, tenants: {acme: ''}}\n", "tenants: it has no name"},
		{"a name that looks like another", "keys:\n- {name: \"a\\u200bcme\", hash: " + sum + "}\n", "not printed"},
		{"issuer without audience", "keys: []\nissuers:\n- {url: https://login.example.com}\n", "no audience"},
		{"objectives", "keys: []\nobjectives:\n- {name: batch, priority: -2}\n- {name: premium, priority: 3}\n", ""},
		{"objective twice", "keys: []\nobjectives:\n- {name: batch, priority: -2}\n- {name: batch, priority: 3}\n", "there twice"},
		{"objective without a name", "keys: []\nobjectives:\n- {priority: -2}\n", "objective 1: it has no name"},
		{"objective too high", "keys: []\nobjectives:\n- {name: a, priority: 9}\n", "want -8 to 8"},
		{"issuer twice", "keys: []\nissuers:\n- {url: https://x.example, audience: a}\n- {url: https://x.example, audience: b}\n", "there twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse([]byte(tc.file))
			switch {
			case tc.err == "" && err != nil:
				t.Fatal(err)
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Fatalf("got %v, want an error with %q", err, tc.err)
			case err != nil && strings.Contains(err.Error(), sum):
				t.Errorf("the error %v has a hash in it", err)
			}
		})
	}
}

func TestAllows(t *testing.T) {
	for _, tc := range []struct {
		models string
		name   string
		want   bool
	}{
		{"", "anything", true},
		{"qwen", "qwen", true},
		{"qwen", "qwen2", false},
		{"qwen*", "qwen2", true},
		{"meta/*", "meta/llama", true},
		{"*", "meta/llama", true},
		{"meta*", "meta/llama", true},
		{"*llama", "meta/llama", true},
		{"a*a", "a", false},
		{"x,y?", "yz", true},
		{"x", "", false},
	} {
		r := Rights{}
		if tc.models != "" {
			r.Models = strings.Split(tc.models, ",")
		}
		if got := r.Allows(tc.name); got != tc.want {
			t.Errorf("%q allows %q: got %v, want %v", tc.models, tc.name, got, tc.want)
		}
	}
}

func TestClaim(t *testing.T) {
	r := Rights{MaxPriority: 2, ServiceTiers: []string{"priority"}}
	for _, tc := range []struct {
		rights   Rights
		priority int
		tier     string
		param    string // empty: allowed
	}{
		{Rights{}, 0, "", ""}, {Rights{}, -5, "flex", ""}, {Rights{}, 0, "auto", ""}, {Rights{}, 1, "", "priority"},
		{Rights{}, 1, "priority", "service_tier"}, {r, 1, "priority", ""}, {r, 2, "priority", ""}, {r, 3, "priority", "priority"}, {r, 3, "", "priority"},
		{Rights{ServiceTiers: []string{"priority"}}, 1, "priority", ""}, {Rights{ServiceTiers: []string{"priority"}}, 2, "priority", "priority"}, {r, 0, "scale", "service_tier"},
	} {
		err := tc.rights.Claim(tc.priority, tc.tier)
		switch {
		case (err == nil) != (tc.param == ""):
			t.Errorf("%+v: got %v", tc, err)
		case err != nil && (err.Param != tc.param || err.Status != http.StatusForbidden):
			t.Errorf("%+v: got %d for %q", tc, err.Status, err.Param)
		}
	}
}

func TestNewKeysDiffer(t *testing.T) {
	a, hash := New()
	b, _ := New()
	if a == b || !strings.HasPrefix(a, Prefix) || len(a) < 40 || Hash(a) != hash {
		t.Errorf("got %s, %s, %s", a, b, hash)
	}
}

// TestEdit edits a file with people's comments.
func TestEdit(t *testing.T) {
	raw, err := Add(nil, Key{Name: "a", Hash: Hash("a"), Rights: Rights{Models: []string{"m*"}, Concurrent: 2}, Expires: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	raw = []byte(strings.Replace(string(raw), "- name: a", "# of the machine in the cellar\n  - name: a", 1) + "issuers:\n  - url: https://x.example # ours\n    audience: rouse\n")
	if raw, err = Add(raw, Key{Name: "b", Hash: Hash("b")}); err != nil {
		t.Fatal(err)
	}
	want := header + `keys:
  # of the machine in the cellar
  - name: a
    hash: ` + Hash("a") + `
    expires: "2030-01-02T03:04:05Z"
    models: ["m*"]
    concurrent: 2
  - name: b
    hash: ` + Hash("b") + `
issuers:
  - url: https://x.example # ours
    audience: rouse
`
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Errorf("after two were added (-want +got):\n%s", diff)
	}
	changed, err := Set(raw, "a", func(k *Key) error {
		k.Name, k.Hash, k.Models, k.Concurrent, k.RequestsPerMinute = "other", "", nil, 3, 60
		return nil
	})
	want = strings.Replace(strings.Replace(want, "    models: [\"m*\"]\n", "    requestsPerMinute: 60\n", 1), "concurrent: 2", "concurrent: 3", 1)
	if diff := cmp.Diff(want, string(changed)); diff != "" || err != nil {
		t.Errorf("after a change (%v, -want +got):\n%s", err, diff)
	}
	if _, err := Set(raw, "c", nil); !errors.Is(err, ErrUnknown) {
		t.Errorf("a key that is not there: got %v", err)
	}
	if _, err := Set(raw, "a", func(k *Key) error { k.Concurrent = -1; return nil }); err == nil {
		t.Error("a negative limit was set")
	}
	if _, err := Add(raw, Key{Name: "b", Hash: Hash("c")}); err == nil {
		t.Error("a second key b was added")
	}
	if raw, err = Remove(raw, "a"); err != nil {
		t.Fatal(err)
	}
	if raw, err = Remove(raw, "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := Remove(raw, "b"); err == nil {
		t.Error("a key that is not there was removed")
	}
	if f, err := Parse(raw); err != nil || len(f.Keys) != 0 || len(f.Issuers) != 1 {
		t.Errorf("in the end: %v, %v\n%s", f, err, raw)
	}
	for _, bad := range []string{"[]", "keys: {}", "x: 1", "keys: [1]"} {
		if out, err := Add([]byte(bad), Key{Name: "b", Hash: Hash("c")}); err == nil {
			t.Errorf("a key was added to %q: %s", bad, out)
		}
	}
}

// FuzzFile checks that an accepted file can be edited and keeps its meaning.
func FuzzFile(f *testing.F) {
	f.Add([]byte("keys:\n- {name: a, hash: " + Hash("k") + "}\nissuers:\n- {url: https://x.example, audience: a}\n"))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		file, err := Parse(raw)
		if err != nil {
			return
		}
		if more, err := Add(raw, Key{Name: "fuzz-new", Hash: Hash("fuzz-new")}); err == nil {
			back, err := Remove(more, "fuzz-new")
			if err != nil {
				t.Fatalf("what was added can't be removed: %v\n%s", err, more)
			}
			again, err := Parse(back)
			if err != nil {
				t.Fatalf("%v\n%s", err, back)
			}
			if diff := cmp.Diff(file, again, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, back)
			}
		}
	})
}
