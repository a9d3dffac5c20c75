package constrain_test

import (
	"errors"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine/constrain"
)

// TestCatastrophes checks that forms that multiply are refused, or cost no more than others: a
// mask is computed within a moment, and is never empty.
func TestCatastrophes(t *testing.T) {
	const moment = 5 * time.Second // hundreds of times the usual time on an idle machine
	v := constrain.NewVocabulary(large())
	mask := make([]uint64, constrain.Words(v.Size()))
	r := rand.New(rand.NewPCG(1, 1))
	for _, source := range []string{
		`root ::= ("a"?){500000}`,
		`root ::= ("a"*){100000}`,
		`root ::= (("a"?){1000} "b"?){100}`,
		`root ::= ("a" | "b"){0,200000}`,
		`root ::= (([a-b]*){1000}[^c]){50}`,
		`root ::= ((((("a"{50}){50}){50}){50}){50}){50}`,
		"root ::= a{1000} b\na ::= b?\nb ::= \"x\"*",
		"root ::= a*\na ::= b? c? d?\nb ::= e{50}\ne ::= c? d?\nc ::= \"x\"* d?\nd ::= (\"x\" | \"y\")*",
		`root ::= (.{0,100} "x"){0,100}`,
		`root ::= (.* "x"){100}`,
		`root ::= ([ -~]* [a-z]){60}`,
		"root ::= (w \" \")*\nw ::= [a-z]* | u\nu ::= [a-e]* [e-j]* [i-z]* x?\nx ::= [a-z]{0,300}",
		"root ::= " + strings.Repeat("(\"a\" | ", 150) + "\"b\"" + strings.Repeat(")", 150),
	} {
		began := time.Now()
		form, err := constrain.GBNF(t.Context(), nil, source)
		if err != nil {
			t.Errorf("%.60s: %v", source, err)
			continue
		}
		g, err := constrain.Compile(t.Context(), nil, form, v)
		if took := time.Since(began); took > moment {
			t.Errorf("%.60s: compiled in %v", source, took)
		}
		var known *constrain.FormError
		if err != nil {
			if !errors.As(err, &known) {
				t.Errorf("%.60s: %v", source, err)
			}
			continue
		}
		m := g.Matcher()
		for range 6 {
			began := time.Now()
			m.Mask(mask)
			if took := time.Since(began); took > moment {
				t.Errorf("%.60s: a mask in %v", source, took)
			}
			var allowed []int32
			for i, w := range mask {
				for ; w != 0; w &= w - 1 {
					allowed = append(allowed, int32(i*64+bits.TrailingZeros64(w)))
				}
			}
			if len(allowed) == 0 {
				t.Fatalf("%.60s: nothing may follow", source)
			}
			if err := m.Accept(allowed[r.IntN(len(allowed))]); err != nil {
				t.Fatal(err)
			}
			if m.Done() {
				break
			}
		}
	}
}
