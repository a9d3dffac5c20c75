package vllmsim

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"strings"
)

// Seed makes a seed from strings; the bounds between them count.
func Seed(parts ...string) uint64 {
	h := fnv.New64a()
	var n [8]byte
	for _, p := range parts {
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		_, _ = h.Write(n[:])
		_, _ = h.Write([]byte(p))
	}
	return h.Sum64()
}

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)) }

// Each adapter speaks of a topic of its own.
var (
	openers    = strings.Fields("The A This That Every One Another Each")
	adjectives = strings.Fields("quiet small bright early narrow distant patient green heavy open simple warm clear steady gentle hidden")
	verbs      = strings.Fields("carries follows finds keeps crosses meets holds turns shows leaves reaches joins")
	links      = strings.Fields("near beyond under across behind beside above toward")
	closers    = strings.Fields("slowly again today together later often alone quickly")
	topics     = [][]string{
		strings.Fields("river stone morning garden window bridge road letter tree field boat house"),
		strings.Fields("kernel cache thread packet buffer server cluster socket table index query shard"),
		strings.Fields("planet comet orbit signal lens crater moon engine capsule antenna star probe"),
		strings.Fields("kitchen bread pepper market apple kettle basket lemon spoon honey plate recipe"),
		strings.Fields("contract court judge clause witness record notice claim statute appeal office seal"),
		strings.Fields("patient doctor ward nurse pulse fever clinic scan dose bandage chart remedy"),
	}
	// Its order is part of every token's number: append only.
	lexicon = func() []string {
		all := []string{".", ",", "!", "\n", "the", "a", "and", "to", "of", "in", "is", "it", "you", "that", "for", "on", "with",
			"user", "assistant", "system", "hello", "Hello", "what", "What", "how", "How", "count", "word", "words", "say"}
		all = append(all, openers...)
		all = append(all, adjectives...)
		all = append(all, verbs...)
		all = append(all, links...)
		all = append(all, closers...)
		for _, t := range topics {
			all = append(all, t...)
		}
		seen := map[string]bool{}
		unique := all[:0]
		for _, w := range all {
			if !seen[w] {
				seen[w] = true
				unique = append(unique, w)
			}
		}
		return unique
	}()
)

// Text is an answer of about 20 to 90 tokens, and of at least atLeast, the same for a seed everywhere. voice is the
// adapter, which is named at the start and chooses the topic.
func Text(seed uint64, voice string, atLeast int) []Token {
	r := source(seed)
	topic := topics[0]
	var tokens []Token
	if voice != "" {
		topic = topics[1+Seed(voice)%uint64(len(topics)-1)]
		tokens = Encode(voice + ":")
	}
	for sentences := 3 + r.IntN(6); sentences > 0 || len(tokens) < atLeast; sentences-- {
		tokens = append(tokens, Encode(sentence(r, topic, len(tokens) > 0))...)
	}
	return tokens
}

func sentence(r *rand.Rand, nouns []string, more bool) string {
	one := func(of []string) string { return of[r.IntN(len(of))] }
	s := one(openers) + " " + one(adjectives) + " " + one(nouns) + " " + one(verbs) + " the " + one(nouns)
	switch r.IntN(3) {
	case 0:
		s += " " + one(links) + " the " + one(adjectives) + " " + one(nouns)
	case 1:
		s += " " + one(closers)
	}
	if more {
		s = " " + s
	}
	return s + "."
}

// Garbage is n tokens that no sentence of [Text] looks like.
func Garbage(seed uint64, n int) []Token {
	r := source(seed)
	alphabet := []string{"!", "!!!!", "�", "####", "Ġ", "}}}}", "0000", "@@@@", "ÿ", "????"}
	tokens := make([]Token, 0, n)
	for len(tokens) < n {
		tokens = appendPiece(tokens, alphabet[r.IntN(len(alphabet))])
	}
	return tokens[:n]
}
