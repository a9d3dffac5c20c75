package local

import (
	"log/slog"
	"os"
	"testing"

	"github.com/rouse-dev/rouse/api/control"
)

// TestBudgetsAreWritten: what a key has used is in the file before its use is reported, and an unchanged file is not written again.
func TestBudgetsAreWritten(t *testing.T) {
	dir := t.TempDir()
	var a, next accounts
	a.read(dir, 1, slog.New(slog.DiscardHandler))
	asked := 0
	budgets := func(tokens float64) func() map[string]control.Budget {
		return func() map[string]control.Budget {
			asked++
			return map[string]control.Budget{"k": {{In: "2026-11-30", Tokens: tokens}, {In: "2026-11", Tokens: tokens}}}
		}
	}
	if err := new(accounts).write(nil, budgets(1)); err != nil || asked > 0 {
		t.Errorf("where nothing is kept, budgets were asked for %d times (%v)", asked, err)
	}
	for _, tokens := range []float64{1, 2} {
		if err := a.write(nil, budgets(tokens)); err != nil {
			t.Fatal(err)
		}
	}
	next.read(dir, 1, slog.New(slog.DiscardHandler))
	if got := next.Budgets["k"][0].Tokens; got != 2 {
		t.Errorf("the file has %g tokens, want 2", got)
	}
	if err := os.Remove(a.path); err != nil {
		t.Fatal(err)
	}
	if err := a.write(nil, budgets(2)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(a.path); err == nil {
		t.Error("unchanged accounts were written again")
	}
	if err := os.Mkdir(a.path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := a.write(nil, budgets(3)); err == nil {
		t.Fatal("a folder was written")
	}
	if err := os.Remove(a.path); err != nil {
		t.Fatal(err)
	}
	if err := a.write(nil, budgets(3)); err != nil {
		t.Fatal(err)
	}
	if next.read(dir, 1, slog.New(slog.DiscardHandler)); next.Budgets["k"][0].Tokens != 3 {
		t.Errorf("after a write that failed the file has %v", next.Budgets)
	}
}
