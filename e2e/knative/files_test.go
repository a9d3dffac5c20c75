package knative

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/engine/pico"
)

// TestFilesFromOtherPods applies manifests/examples/files as its comment says. The second pod gets its model's file from the
// first; one without the secret, and one that asks the source with another credential, get it from the source.
func TestFilesFromOtherPods(t *testing.T) {
	parallel(t)
	c := rouse(t)
	const in = "files-of-others"
	file := append(bytes.Clone(pico.GGUF()), make([]byte, 4<<20)...) // a model, with enough behind it to be worth sharing
	var sent atomic.Int64
	address, _ := serveNode(t, c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(countedBody{w, &sent}, r, "", time.Time{}, bytes.NewReader(file))
	}))
	_, _ = c.Kubectl(t.Context(), "delete", "namespace", in, "--ignore-not-found") // of a run that was killed
	t.Cleanup(func() { _, _ = c.Kubectl(context.Background(), "delete", "namespace", in, "--wait=false") })
	for _, step := range [][]string{
		{"create", "namespace", in},
		{"-n", in, "create", "secret", "generic", "rouse-files", "--from-literal=secret=a-secret-of-this-namespace"},
		{"-n", in, "apply", "-f", filepath.Join(root, "manifests/examples/files/files.yaml")},
	} {
		if out, err := c.Kubectl(t.Context(), step...); err != nil {
			t.Fatalf("kubectl %s: %v: %s", strings.Join(step, " "), err, out)
		}
	}
	sharing := []string{"--label-revision", "rouse.dev/files=true", "--env", "ROUSE_SHARE_PEERS=rouse-files:8013", "--env", "ROUSE_SHARE_LISTEN=:8013",
		"--env", "ROUSE_SHARE_SECRET_FILE=/etc/rouse-files/secret", "--mount", "/etc/rouse-files=secret:rouse-files"}
	said := ""
	for _, step := range []struct {
		name, credential string
		more             []string
		copies           int64 // that the source has sent after it
	}{
		{"first", "ours", sharing, 1},
		{"second", "ours", sharing, 1},
		{"another-credential", "theirs", sharing, 2},
		{"no-secret", "ours", nil, 3},
	} {
		ref := fmt.Sprintf("http://%s/m.gguf?signature=%s#sha256=%x", address, step.credential, sha256.Sum256(file))
		f := createIn(t, in, "files-"+step.name, functionImage, []string{"rouse.dev/model=" + ref, "rouse.dev/memory=64Mi", "rouse.dev/sleep-after=2s", "rouse.dev/gone-after=0"}, step.more...)
		got := content(f.ask("red blue").body)
		if said == "" {
			said = got
		}
		if got == "" || got != said {
			t.Errorf("%s says %q, want %q", f.name, got, said)
		}
		if more := sent.Load() - step.copies*int64(len(file)); more < 0 || more > 100 { // each asks for a byte first, to see what there is
			t.Errorf("after %s the source has sent %d bytes more than %d copies of a file of %d", f.name, more, step.copies, len(file))
		}
		out, err := c.Kubectl(t.Context(), "-n", in, "logs", f.pods()[0].Metadata.Name, "-c", "user-container")
		if together := strings.Contains(out, "fetched a file together"); err != nil || together != (step.more != nil) {
			t.Errorf("%s (%v): its log says that it has fetched together: %v\n%s", f.name, err, together, out)
		}
		if strings.Contains(out, "a-secret-of-this-namespace") || strings.Contains(out, "signature="+step.credential) {
			t.Errorf("a secret is in the log of %s:\n%s", f.name, out)
		}
	}
}

// countedBody counts what is sent.
type countedBody struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (b countedBody) Write(p []byte) (int, error) {
	n, err := b.ResponseWriter.Write(p)
	b.sent.Add(int64(n))
	return n, err
}
