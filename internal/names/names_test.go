package names_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/names"
)

func claim(service string, hour int, kind names.Kind, name string) names.Declaration {
	c := names.Declaration{Service: api.FunctionName(service), Name: api.ModelName(name), Kind: kind}
	if hour > 0 {
		c.Created = time.Unix(0, 0).Add(time.Duration(hour) * time.Hour)
	}
	return c
}

func TestSettle(t *testing.T) {
	for name, tc := range map[string]struct {
		claims []names.Declaration
		has    string // one letter each
		losses []string
	}{
		"the oldest, whatever it wants it for": {
			[]names.Declaration{claim("b/m", 2, names.Model, "m"), claim("a/x", 1, names.Adapter, "m"), claim("c/m", 3, names.Own, "m")},
			"-+-", []string{`the name "m" of b/m finds a/x, which was there first: choose another name, or ask for b/m`},
		},
		"an unknown age is the youngest": {
			[]names.Declaration{claim("a/x", 0, names.Model, "m"), claim("b/y", 9, names.Alias, "m")},
			"-+", []string{`the name "m" of a/x finds b/y, which was there first: choose another name, or ask for a/x`},
		},
		"of one age a model before an alias": {
			[]names.Declaration{claim("a/x", 1, names.Alias, "m"), claim("b/y", 1, names.Model, "m")},
			"-+", []string{`the name "m" of a/x finds b/y, which was there first: choose another name, or ask for a/x`},
		},
		"a full name is its service's": {
			[]names.Declaration{claim("a/x", 1, names.Alias, "b/y"), claim("b/y", 2, names.Model, "y"), claim("b/z", 1, names.Adapter, "b/y:latest")},
			"-+-", []string{
				`the name "b/y" of a/x finds b/y, which is called so: choose another name`,
				`the name "b/y:latest" of an adapter of b/z finds b/y, which is called so: choose another name`,
			},
		},
		"another's prefix": {
			[]names.Declaration{claim("a/x", 1, names.Alias, "b/later"), claim("a/x", 1, names.Alias, "there/m"), claim("a/x", 1, names.Alias, "a/own"), claim("a/x", 1, names.Alias, "openai/gpt"), claim("b/y", 2, names.Model, "y")},
			"--+++", []string{
				`the name "b/later" of a/x is refused: b/ is the namespace b: choose another name`,
				`the name "there/m" of a/x is refused: there/ is the namespace there: choose another name`,
			},
		},
		"an adapter that is called like its model": {
			[]names.Declaration{claim("a/x", 1, names.Adapter, "x"), claim("a/x", 1, names.Model, "x")},
			"-+", []string{`the name "x" of an adapter of a/x finds a/x itself: choose another name`},
		},
		"a model with variants does not take the name of a service": {
			[]names.Declaration{claim("a/big", 2, names.Variant, "big"), claim("a/big", 1, names.Model, "big")},
			"-+", []string{`the name "big" of a/big finds a/big itself: choose another name`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			has, losses := names.Settle(tc.claims, func(n string) bool { return n == "there" })
			got := ""
			for _, h := range has {
				got += map[bool]string{true: "+", false: "-"}[h]
			}
			if got != tc.has {
				t.Errorf("has: got %s, want %s", got, tc.has)
			}
			for i, l := range losses {
				if i >= len(tc.losses) || l.String() != tc.losses[i] {
					t.Errorf("loss %d: got %s, want %q", i, l, tc.losses)
				}
			}
			if len(losses) != len(tc.losses) {
				t.Errorf("%d losses, want %d", len(losses), len(tc.losses))
			}
		})
	}
}

// TestSettleAnyOrder checks that the result does not depend on the order of the services, that no service owns
// another's own name, and that no name has two owners.
func TestSettleAnyOrder(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	pool := []string{"m", "m:latest", "s0", "s1", "n0/s0", "n1/s1", "n1/s1:latest", "n2/free", "hf/Model", "n0/free"}
	for range 2000 {
		var claims []names.Declaration
		for s := range 2 + draw.IntN(4) {
			service := fmt.Sprintf("n%d/s%d", s%3, s)
			claims = append(claims, claim(service, s+1, names.Own, fmt.Sprintf("s%d", s)))
			for range draw.IntN(4) {
				kind := []names.Kind{names.Model, names.Alias, names.Adapter}[draw.IntN(3)]
				claims = append(claims, claim(service, s+1, kind, pool[draw.IntN(len(pool))]))
			}
		}
		holders := func() map[string]api.FunctionName {
			out := map[string]api.FunctionName{}
			has, _ := names.Settle(claims, func(string) bool { return false })
			for i, h := range has {
				if !h {
					continue
				}
				c := claims[i]
				name := strings.TrimSuffix(string(c.Name), names.Latest)
				if other, taken := out[name]; taken && other != c.Service {
					t.Fatalf("%s has two holders, %s and %s, in %v", name, other, c.Service, claims)
				}
				out[name] = c.Service
				for _, d := range claims {
					if string(d.Service) == name && c.Service != d.Service {
						t.Fatalf("%s has the name of %s, in %v", c.Service, d.Service, claims)
					}
				}
			}
			return out
		}
		before := holders()
		draw.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
		if after := holders(); !maps.Equal(before, after) {
			t.Fatalf("in another order: %v, then %v", before, after)
		}
	}
}
