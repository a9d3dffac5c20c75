package constrain_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/rouse-dev/rouse/engine/constrain"
)

// large is a vocabulary of the size and kind of Qwen's: words with and without a
// blank before them, punctuation with quotes and brackets, characters beyond ASCII.
var large = sync.OnceValue(func() words {
	r := rand.New(rand.NewPCG(1, 1))
	seen := map[string]bool{}
	var w words
	add := func(s string) {
		if !seen[s] && len(s) > 1 {
			seen[s] = true
			w = append(w, s)
		}
	}
	letters := "etaoinshrdlucmfwypvbgkjqxz"
	for len(w) < 120000 {
		s := ""
		if r.IntN(2) == 0 {
			s = " "
		}
		for range 2 + r.IntN(8) {
			s += string(letters[min(r.IntN(26), r.IntN(26))])
		}
		add(s)
	}
	for len(w) < 125000 {
		s := ""
		for range 2 + r.IntN(4) {
			s += string("\"\"{}[]:,,. \n\t\\/-_()'0123456789"[r.IntN(30)])
		}
		add(s)
	}
	for len(w) < 151936-257 {
		s := ""
		for range 1 + r.IntN(4) {
			s += string(rune(0x4E00 + r.IntN(20000)))
		}
		add(s)
	}
	return w
})

var person = `{"type":"object","properties":{"name":{"type":"string","maxLength":200},"age":{"type":"integer","minimum":0,"maximum":150},"notes":{"type":"string"},"tags":{"type":"array","items":{"type":"string"}}},"required":["name","age","notes","tags"],"additionalProperties":false}`

// BenchmarkMask measures masks at a vocabulary of 151,936 tokens: one that is
// known, the first ones of a grammar, and the steps of a whole answer.
func BenchmarkMask(b *testing.B) {
	v := constrain.NewVocabulary(large())
	mask := make([]uint64, constrain.Words(v.Size()))
	object := []byte(`{"name":"Ann of the river","age":37,"notes":"some words \u00e9 and more","tags":["x","yz",{"`)
	form, err := constrain.Schema(b.Context(), nil, []byte(person))
	if err != nil {
		b.Fatal(err)
	}
	compiled := func(f constrain.Form) constrain.Grammar {
		g, err := constrain.Compile(b.Context(), nil, f, v)
		if err != nil {
			b.Fatal(err)
		}
		return g
	}
	steps := func(m constrain.Matcher, text []byte) (n int) {
		for _, c := range text {
			m.Mask(mask)
			n++
			if m.Accept(int32(c)) != nil {
				break
			}
		}
		return n
	}
	b.Run("vocabulary", func(b *testing.B) {
		for b.Loop() {
			constrain.NewVocabulary(large())
		}
	})
	b.Run("compile", func(b *testing.B) {
		for b.Loop() {
			compiled(form)
		}
	})
	b.Run("string/first", func(b *testing.B) {
		for b.Loop() {
			m := compiled(constrain.JSON()).Matcher()
			for _, c := range []byte(`{"a":"b`) {
				if err := m.Accept(int32(c)); err != nil {
					b.Fatal(err)
				}
			}
			m.Mask(mask)
		}
	})
	b.Run("string/known", func(b *testing.B) {
		m := compiled(constrain.JSON()).Matcher()
		for _, c := range []byte(`{"a":"b`) {
			if err := m.Accept(int32(c)); err != nil {
				b.Fatal(err)
			}
		}
		for b.Loop() {
			m.Mask(mask)
		}
	})
	b.Run("string/deeper", func(b *testing.B) {
		m := compiled(constrain.JSON()).Matcher()
		steps(m, []byte(`{"a":"b`))
		for b.Loop() {
			if err := m.Accept('"'); err != nil {
				b.Fatal(err)
			}
			steps(m, []byte(`,"a":{"b":"c`))
		}
		b.ReportMetric(12, "masks")
	})
	b.Run("answer/first", func(b *testing.B) {
		n := 0
		for b.Loop() {
			n = steps(compiled(form).Matcher(), object)
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/mask")
	})
	b.Run("answer/known", func(b *testing.B) {
		g, n := compiled(form), 0
		for b.Loop() {
			n = steps(g.Matcher(), object)
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/mask")
	})
}
