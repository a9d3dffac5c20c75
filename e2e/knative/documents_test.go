package knative

import (
	"context"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/e2e/pages"
)

var update = flag.Bool("update", false, "write what the commands of documents print into them")

// TestDocumentsOfACluster runs those commands of the documents that are for a cluster, as package pages does, and compares what they print.
func TestDocumentsOfACluster(t *testing.T) {
	c := rouse(t)
	files, err := pages.Files(root, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Run(f.Name, func(t *testing.T) {
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
			err = f.Check(s, true)
			t.Logf("%s took %v", f.Path, time.Since(began).Round(time.Second))
			if err != nil {
				t.Error(err)
			}
		})
	}
	if len(files) == 0 {
		t.Error("no page has commands for a cluster: the test looks in the wrong place")
	}
}
