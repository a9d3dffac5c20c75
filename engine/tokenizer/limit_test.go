package tokenizer_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
)

// TestTurns checks that texts of the largest size wait for one another, in order, that smaller ones wait for none of
// them, and that a client that leaves stops waiting.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tok := build(t, byteVocab("gpt-2", "a|a"))
		text := strings.Repeat("a", 5<<20)
		leave, err := tok.Enter(t.Context(), len(text))
		if err != nil {
			t.Fatal(err)
		}
		gone := errors.New("the client left")
		ctx, cancel := context.WithCancelCause(t.Context())
		results := make(chan error, 2)
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() {
				_, err := tok.EncodeWithin(ctx, text, true, math.MaxInt)
				results <- err
			}()
			synctest.Wait()
		}
		for _, bytes := range []int{1, 64 << 10, 512 << 10, 4 << 20} {
			if ids, err := tok.EncodeWithin(t.Context(), text[:bytes], true, math.MaxInt); err != nil || len(ids) == 0 {
				t.Errorf("%d bytes: %d tokens, %v", bytes, len(ids), err)
			}
		}
		if len(results) != 0 {
			t.Fatalf("a text did not wait: %v", <-results)
		}
		cancel(gone)
		if err := <-results; !errors.Is(err, gone) {
			t.Errorf("the one whose client left: %v", err)
		}
		leave()
		if err := <-results; err != nil {
			t.Errorf("the other: %v", err)
		}
	})
}

// TestFewest checks that Fewest is a lower bound, and is large for a text that is far too long.
func TestFewest(t *testing.T) {
	parts := append([]string{"ab ", "<|im_start|>", "<|im_\uFDD0start|>", "<tool>", "<s> \n", "\u1100\u1161\u11a8", "\u212a", "▁"}, long...)
	for name, tok := range kinds(t) {
		for _, part := range parts {
			text := strings.Repeat(part, 1<<16/len(part))
			for _, special := range []bool{false, true} {
				if fewest, ids := tok.Fewest(text), tok.Encode(text, special); fewest > len(ids) {
					t.Errorf("%s: %q: at least %d tokens, and there are %d", name, part, fewest, len(ids))
				}
			}
			if bounded := name != "WordPiece" && !strings.Contains(name, "phi3"); bounded != (tok.Fewest(text) > 50) {
				t.Errorf("%s: %q: at least %d tokens", name, part, tok.Fewest(text))
			}
		}
	}
}
