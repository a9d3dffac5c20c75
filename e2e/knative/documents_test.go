package knative

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/e2e/pages"
)

var update = flag.Bool("update", false, "write what the commands of documents print into them")

// TestDocumentsOfACluster runs those commands of the documents that are for a cluster, as package pages does, and compares what they print.
func TestDocumentsOfACluster(t *testing.T) {
	c := rouse(t)
	var files []string
	for _, pattern := range []string{"docs/*.md", "docs/tutorials/*.md", "docs/howto/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	followed := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		page, err := pages.Parse(string(raw))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !page.Runs(true) {
			continue
		}
		followed++
		t.Run(strings.TrimSuffix(filepath.Base(file), ".md"), func(t *testing.T) {
			env := append(c.Env(), "INGRESS="+strings.TrimPrefix(c.IngressURL, "http://"), "NO_COLOR=1", "COLUMNS=160")
			home := t.TempDir()
			s, err := pages.Open(pages.Config{Dir: home, Home: home, Env: env, Patience: within, Update: *update})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				ctx := context.WithoutCancel(t.Context())
				_, _ = c.Kn(ctx, "service", "delete", "pico") // where it went wrong it is still there
				_, _ = c.Kn(ctx, "rouse", "keys", "revoke", "me")
			})
			began := time.Now()
			text, err := page.Follow(s, true)
			t.Logf("%s took %v", file, time.Since(began).Round(time.Second))
			if err != nil {
				t.Error(err)
			} else if *update {
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if followed == 0 {
		t.Error("no page has commands for a cluster: the test looks in the wrong place")
	}
}
