package api_test

import (
	"testing"

	"github.com/rouse-dev/rouse/api"
)

// TestEventsOf checks the stream protocol of each path.
func TestEventsOf(t *testing.T) {
	for path, want := range map[string]api.Stream{
		"/v1/chat/completions": api.StreamCompletion, "/v1/completions": api.StreamCompletion, "/v1/messages": api.StreamMessages,
		"/generate": api.StreamCompletion, "/api/chat": api.StreamPlain, "/v1/responses": api.StreamResponses, "/v1/responses/resp_1": api.StreamResponses, "/v1/embeddings": api.StreamPlain, "/v1/chat/completions/batch": api.StreamPlain,
		"/invocations": api.StreamAgent, "/serving-endpoints/a/invocations": api.StreamAgent, "/serving-endpoints/a": api.StreamPlain,
	} {
		if got := api.EventsOf(path); got != want {
			t.Errorf("%s: style %d, want %d", path, got, want)
		}
	}
}

// TestFindPath checks that paths match with their method only, and never if a server could read them as another path.
func TestFindPath(t *testing.T) {
	for request, want := range map[[2]string]string{
		{"POST", "/v1/chat/completions"}: "/v1/chat/completions", {"GET", "/v1/chat/completions"}: "",
		{"HEAD", "/v1/models"}: "/v1/models", {"GET", "/v1/models/org/name"}: "/v1/models/…", {"GET", "/v1/models/../wake"}: "",
		{"POST", "/v1/audio/speech"}: "/v1/audio/speech", {"POST", "/v1/audio/clones"}: "/v1/audio/…", {"GET", "/v1/images/generations"}: "", {"GET", "/v1/responses/r"}: "/v1/responses/…", {"GET", "/v1/responses/r/s"}: "",
		{"POST", "/v1/responses/r/cancel"}: "/v1/responses/…/cancel", {"POST", "/v1/responses/r"}: "", {"POST", "/wake_up"}: "",
	} {
		if p, found := api.FindPath(request[0], request[1]); p.Pattern != want || found != (want != "") {
			t.Errorf("%s: got %q, %t; want %q", request, p.Pattern, found, want)
		}
	}
}
