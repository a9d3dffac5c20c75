package leader

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

// Streams as they come from a leader, cut at every byte, read in every size.
func TestStreamsEndHonestly(t *testing.T) {
	broken := errors.New("broken")
	const event = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n"
	for name, tt := range map[string]struct {
		path, kind, body, want string
		err                    error
	}{
		"whole":                  {"/v1/completions", "text/event-stream", event + "data: [DONE]\n\n", event + "data: [DONE]\n\n", io.EOF},
		"cut between events":     {"/v1/completions", "text/event-stream", event, event + "data: {\"error\":", broken},
		"cut within an event":    {"/v1/completions", "text/event-stream; charset=utf-8", event + "data: {\"cho", event + "data: {\"error\":", broken},
		"cut after its last one": {"/v1/completions", "text/event-stream", event + "data: [DONE]\n\n", event + "data: [DONE]\n\n", broken},
		"without its last line":  {"/v1/completions", "text/event-stream", event + ": end", event + ": end", io.EOF},
		"lines":                  {"/api/chat", "application/x-ndjson", "{\"done\":false}\n{\"do", "{\"done\":false}\n{\"error\":", broken},
		"messages":               {"/v1/messages", "text/event-stream", "event: ping\ndata: {}\n\n", "event: ping\ndata: {}\n\nevent: error\n", broken},
	} {
		for size := range 40 {
			resp := &http.Response{
				Header: http.Header{"Content-Type": {tt.kind}}, Request: &http.Request{URL: &url.URL{Path: tt.path}},
				Body: io.NopCloser(io.MultiReader(iotest.OneByteReader(strings.NewReader(tt.body)), iotest.ErrReader(tt.err))),
			}
			if size%2 == 0 {
				resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(tt.body), iotest.ErrReader(tt.err)))
			}
			if err := endHonestly(resp); err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			if _, err := io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{resp.Body}, make([]byte, size+1)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			ok := got.String() == tt.want
			if strings.Contains(tt.want, "error") {
				ok = strings.HasPrefix(got.String(), tt.want) && strings.HasSuffix(got.String(), "\n")
			}
			if !ok {
				t.Fatalf("%s, read %d bytes at once: got\n%s\nwant\n%s", name, size+1, got.String(), tt.want)
			}
		}
	}
}

// What is no stream breaks as it broke.
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
