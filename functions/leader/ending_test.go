package leader

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rouse-dev/rouse/internal/relay/relaytest"
)

// Streams from a leader, read in several sizes.
func TestStreamsEndHonestly(t *testing.T) {
	for _, size := range []int{1, 5, 4096} {
		relaytest.Ends{AnyEnd: true, Through: func(t *testing.T, s relaytest.Stream) string {
			var pieces []io.Reader
			for _, p := range s.Pieces {
				pieces = append(pieces, strings.NewReader(p))
			}
			if s.Broken {
				pieces = append(pieces, iotest.ErrReader(errors.New("broken")))
			}
			resp := &http.Response{
				Header: http.Header{"Content-Type": {s.ContentType}}, Request: &http.Request{URL: &url.URL{Path: s.Path}}, Body: io.NopCloser(io.MultiReader(pieces...)),
			}
			if err := endHonestly(resp); err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			if _, err := io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{resp.Body}, make([]byte, size)); err != nil {
				t.Error(err)
			}
			return got.String()
		}}.Run(t)
	}
}

// Other answers keep their broken end.
func TestOthersBreak(t *testing.T) {
	broken := errors.New("broken")
	resp := &http.Response{
		Header: http.Header{"Content-Type": {"application/json"}}, Request: &http.Request{URL: &url.URL{Path: "/v1/completions"}},
		Body: io.NopCloser(io.MultiReader(strings.NewReader("{"), iotest.ErrReader(broken))),
	}
	if err := endHonestly(resp); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, broken) {
		t.Errorf("read: %v, want the error", err)
	}
}
