// Package apikey handles the file that declares the keys of a front door's clients, by their SHA-256 sums.
package apikey

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/rouse-dev/rouse/api"
)

// File declares the clients of a front door.
type File struct {
	Keys    []Key    `json:"keys"`
	Issuers []Issuer `json:"issuers,omitempty"`
	// For the header x-llm-d-inference-objective.
	Objectives []Objective `json:"objectives,omitempty"`
}

// Objective is a name for a priority.
type Objective struct {
	Name string `json:"name"`
	// Higher first; below 0 sheddable.
	Priority int `json:"priority"`
}

// Key is one API key.
type Key struct {
	// For people and logs.
	Name string `json:"name"`
	Hash string `json:"hash,omitempty"`
	// Default: Name.
	Tenant string `json:"tenant,omitempty" flag:"tenant" help:"whose it is: requests of one tenant share its turns and its cached prompts (default: NAME)"`
	// Zero: never.
	Expires time.Time `json:"expires,omitzero"`
	Rights
}

// Rights are a client's models and limits. Zero allows everything, at the default priority.
type Rights struct {
	// Patterns such as "qwen*"; nil: all. An adapter counts as a model.
	Models []string `json:"models,omitempty" flag:"model" help:"a <pattern> of the models that it may use, such as 'qwen*' (repeatable; default: all)"`
	// In a minute; 0: no limit.
	RequestsPerMinute int64 `json:"requestsPerMinute,omitempty" flag:"requests-per-minute" help:"how many requests may begin in a minute; 0: no limit"`
	TokensPerMinute   int64 `json:"tokensPerMinute,omitempty" flag:"tokens-per-minute" help:"how many tokens, of input and output together, may be used in a minute; 0: no limit"`
	// By UTC; 0: no limit.
	TokensPerDay       int64 `json:"tokensPerDay,omitempty" flag:"tokens-per-day" help:"how many tokens may be used in a day, of UTC; 0: no limit"`
	TokensPerMonth     int64 `json:"tokensPerMonth,omitempty" flag:"tokens-per-month" help:"how many tokens may be used in a month, of UTC; 0: no limit"`
	GPUSecondsPerDay   int64 `json:"gpuSecondsPerDay,omitempty" flag:"gpu-seconds-per-day" help:"how many seconds of GPUs may be used in a day, of UTC; 0: no limit"`
	GPUSecondsPerMonth int64 `json:"gpuSecondsPerMonth,omitempty" flag:"gpu-seconds-per-month" help:"how many seconds of GPUs may be used in a month, of UTC; 0: no limit"`
	// Waiting or running at once; 0: no limit.
	Concurrent int `json:"concurrent,omitempty" flag:"concurrent" help:"how many requests may wait or run at once; 0: no limit"`
	// The negative of the field "priority".
	MaxPriority int `json:"maxPriority,omitempty" flag:"max-priority" help:"the highest priority that its requests may claim, 0 to 8"`
	// Besides auto, default and flex.
	ServiceTiers []string `json:"serviceTiers,omitempty" flag:"service-tier" help:"a service <tier> that its requests may claim besides auto, default and flex (repeatable)"`
}

// Issuer is an OpenID Connect issuer whose tokens count as keys.
type Issuer struct {
	// The base of /.well-known/openid-configuration.
	URL string `json:"url"`
	// Of its tokens.
	Audience string `json:"audience"`
	// Default "sub".
	TenantClaim string `json:"tenantClaim,omitempty"`
	// By claim; others are [Issuer.Tenant]'s default.
	Tenants map[string]string `json:"tenants,omitempty"`
	Rights
}

// In bytes. A tenant of an issuer may have twice as many.
const maxName = 128

// Anonymous is the entry for clients without a key. They share its limits, but each address is a client of its own.
// Without it they are rejected.
const Anonymous = "anonymous"

// Parse parses a File in YAML or JSON.
func Parse(raw []byte) (*File, error) {
	doc, err := toJSON(raw)
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file of keys is empty: want keys: and a list, which may be []")
	}
	if err != nil {
		return nil, fmt.Errorf("the file of keys: %w", err)
	}
	var f File
	if err := api.Decode(bytes.NewReader(doc), &f); err != nil {
		return nil, fmt.Errorf("the file of keys: %w", err)
	}
	return &f, f.Validate()
}

// JSON's decoder checks types and unknown fields.
func toJSON(raw []byte) ([]byte, error) {
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	var doc, second any
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has a second document after ---: want one")
	}
	return json.Marshal(doc)
}

// Validate returns an error for the first invalid key or issuer.
func (f *File) Validate() error {
	names, sums := map[string]bool{}, map[string]string{}
	for i, k := range f.Keys {
		if err := ValidName(k.Name); err != nil {
			return fmt.Errorf("key %d: %w", i+1, err)
		}
		if names[k.Name] {
			return fmt.Errorf("two keys are called %s: give each a name of its own", k.Name)
		}
		names[k.Name] = true
		if err := k.validate(); err != nil {
			return fmt.Errorf("key %s: %w", k.Name, err)
		}
		if k.Name == Anonymous {
			continue
		}
		sum := strings.ToLower(k.Hash)
		if other := sums[sum]; other != "" {
			return fmt.Errorf("the keys %s and %s have the same hash: make a new key (rouse keys create)", other, k.Name)
		}
		sums[sum] = k.Name
	}
	for i, s := range f.Issuers {
		if err := s.validate(); err != nil {
			return fmt.Errorf("issuer %d: %w", i+1, err)
		}
		if slices.ContainsFunc(f.Issuers[:i], func(o Issuer) bool { return o.URL == s.URL }) {
			return fmt.Errorf("the issuer %s is there twice", s.URL)
		}
	}
	for i, o := range f.Objectives {
		if err := ValidName(o.Name); err != nil {
			return fmt.Errorf("objective %d: %w", i+1, err)
		}
		if o.Priority < -maxPriority || o.Priority > maxPriority {
			return fmt.Errorf("objective %s: priority is %d: want %d to %d", o.Name, o.Priority, -maxPriority, maxPriority)
		}
		if slices.ContainsFunc(f.Objectives[:i], func(p Objective) bool { return p.Name == o.Name }) {
			return fmt.Errorf("the objective %s is there twice", o.Name)
		}
	}
	return nil
}

func (k *Key) validate() error {
	if k.Name == Anonymous {
		switch {
		case k.Hash != "":
			return errors.New("it is for clients without a key, and has a hash: want none, or another name")
		case k.Tenant != "" || !k.Expires.IsZero() || k.MaxPriority != 0 || len(k.ServiceTiers) > 0:
			return errors.New("it is for clients without a key: want models and limits only, without tenant, expires, maxPriority and serviceTiers")
		}
		return k.Rights.validate()
	}
	if b, err := hex.DecodeString(k.Hash); err != nil || len(b) != sha256.Size {
		return errors.New("its hash is no SHA-256 sum: want 64 hexadecimal digits (rouse keys create writes them)")
	}
	if k.Tenant != "" {
		if err := ValidName(k.Tenant); err != nil {
			return fmt.Errorf("tenant: %w", err)
		}
	}
	return k.Rights.validate()
}

func (i *Issuer) validate() error {
	u, err := url.Parse(i.URL)
	bad := ValidName(i.URL + "#") // half of a tenant's name
	switch {
	case bad != nil:
		return fmt.Errorf("url: %w", bad)
	case strings.ContainsAny(i.URL, "?#"):
		return fmt.Errorf("url %q: want one without a query and a fragment", i.URL)
	case err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, u.Hostname())):
		return fmt.Errorf("url %q: want https://…, or http:// on this machine", i.URL)
	case i.Audience == "":
		return fmt.Errorf("%s: it has no audience: any token of that issuer would be accepted, whomever it is for", i.URL)
	}
	for claim, tenant := range i.Tenants {
		if err := cmp.Or(ValidName(claim), ValidName(tenant)); err != nil {
			return fmt.Errorf("%s: tenants: %w", i.URL, err)
		}
	}
	return i.Rights.validate()
}

func (r *Rights) validate() error {
	for _, p := range r.Models {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("models: %q is no pattern: want a name, where * is any part of it", p)
		}
	}
	switch {
	case min(r.RequestsPerMinute, r.TokensPerMinute, r.TokensPerDay, r.TokensPerMonth, r.GPUSecondsPerDay, r.GPUSecondsPerMonth, int64(r.Concurrent)) < 0:
		return errors.New("a limit is negative: want 0 (no limit) or more")
	case r.MaxPriority < 0 || r.MaxPriority > maxPriority:
		return fmt.Errorf("maxPriority is %d: want 0 to %d", r.MaxPriority, maxPriority)
	}
	return nil
}

const maxPriority = 8

// ValidName returns why s cannot be the name of a key or tenant, or nil.
func ValidName(s string) error {
	bad := func(c rune) bool { return c == ' ' || c == '"' || !unicode.IsPrint(c) } // else two names could look alike
	switch {
	case s == "":
		return errors.New("it has no name")
	case len(s) > maxName:
		return fmt.Errorf("the name has %d bytes: want at most %d", len(s), maxName)
	case strings.IndexFunc(s, bad) >= 0:
		return fmt.Errorf("the name %q has a blank, a quote or a character that is not printed", s)
	}
	return nil
}

// Prefix begins every key made by [New]: secret scanners can find it.
const Prefix = "rouse-"

// New generates a key. Only its hash may be stored.
func New() (key, hash string) {
	key = Prefix + strings.ToLower(rand.Text()+rand.Text()[:14])
	return key, Hash(key)
}

// Hash returns a key's stored form: keys are random, so a plain sum suffices.
func Hash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// Tenant returns a claim's tenant, by default URL#CLAIM: URLs contain no "#", so it is no other issuer's or key's.
func (i *Issuer) Tenant(claim string) string { return cmp.Or(i.Tenants[claim], i.URL+"#"+claim) }

// Owner returns the key's tenant.
func (k *Key) Owner() string { return cmp.Or(k.Tenant, k.Name) }

// Budgets returns the limits of tokens and GPU-seconds, of day and month.
func (r Rights) Budgets() [2][2]int64 {
	return [2][2]int64{{r.TokensPerDay, r.GPUSecondsPerDay}, {r.TokensPerMonth, r.GPUSecondsPerMonth}}
}

// Unrestricted reports whether all models may be used.
func (r Rights) Unrestricted() bool { return len(r.Models) == 0 }

// Allows reports whether a model with these names may be used.
func (r Rights) Allows(names ...string) bool {
	return r.Unrestricted() || slices.ContainsFunc(r.Models, func(p string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return matches(p, name) })
	})
}

// A single * also matches slashes.
func matches(pattern, name string) bool {
	if ok, err := path.Match(pattern, name); ok && err == nil {
		return true
	}
	before, after, star := strings.Cut(pattern, "*")
	if !star || strings.ContainsAny(before+after, `*?[\`) {
		return false
	}
	return len(name) >= len(before)+len(after) && strings.HasPrefix(name, before) && strings.HasSuffix(name, after)
}

// Claim refuses a priority; tier is the service tier that it comes from.
func (r Rights) Claim(priority int, tier string) *api.Error {
	most := r.MaxPriority
	switch {
	case tier == "", tier == "auto", tier == "default", tier == "flex":
	case slices.Contains(r.ServiceTiers, tier):
		most = max(most, 1) // the value of the tier "priority"
	default:
		e := api.Errorf(http.StatusForbidden, api.CodeNotAllowed, "this key may not claim the service tier %.40q", tier)
		e.Param = "service_tier"
		return e
	}
	if priority > most {
		e := api.Errorf(http.StatusForbidden, api.CodeNotAllowed, "this key may claim a priority of %d or more, and the request claims %d (lower is earlier)", -most, -priority)
		e.Param = "priority"
		return e
	}
	return nil
}
