package door

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestFollow changes the file of a front door while it is followed: only complete and valid contents are declared.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clusters.yaml")
	sum := strings.Repeat("ab", 32)
	text := func(names ...string) string {
		out := "listen: 127.0.0.1:1\ncertificate: c\nkey: k\nclusters:\n"
		for _, n := range names {
			out += "- {name: " + n + ", tokenHashes: [" + sum + "], functions: [\"default/*\"]}\n"
		}
		return out
	}
	write := func(s string) {
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text("a"))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var told [][]string
		declare := func(list []Declaration) error {
			var names []string
			for _, d := range list {
				if d.Name == "bad" {
					return errors.New("cluster bad: no")
				}
				names = append(names, d.Name)
			}
			told = append(told, names)
			return nil
		}
		var running sync.WaitGroup
		running.Go(func() { Follow(ctx, path, time.Second, declare, slog.New(slog.DiscardHandler)) })
		synctest.Wait()
		for _, step := range []struct {
			name   string
			change func()
			want   []string // the new declarations; nil: none
		}{
			{"nothing has changed", func() {}, nil},
			{"a cluster more", func() { write(text("a", "b")) }, []string{"a", "b"}},
			{"half a file", func() { write(text("a", "b")[:40]) }, nil},
			{"a field that there is not", func() { write("colour: red\n") }, nil},
			{"a declaration that is refused", func() { write(text("bad")) }, nil},
			{"no file", func() { _ = os.Remove(path) }, nil},
			{"one cluster less", func() { write(text("b")) }, []string{"b"}},
			{"none", func() { write(strings.Replace(text(), "clusters:\n", "clusters: []\n", 1)) }, []string{}},
		} {
			before := len(told)
			step.change()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			switch got := told[before:]; {
			case step.want == nil && len(got) > 0:
				t.Errorf("%s: declared %v", step.name, got)
			case step.want != nil && (len(got) != 1 || !slices.Equal(got[0], step.want)):
				t.Errorf("%s: declared %v, want %v", step.name, got, step.want)
			}
		}
		cancel()
		running.Wait()
	})
}
