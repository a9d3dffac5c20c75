package pyfunc_test

import (
	"fmt"
	"net/http"
	"testing"
)

// TestErrorsInStreams checks that an error event of any shape becomes one of AgentServer's.
func TestErrorsInStreams(t *testing.T) {
	for name, event := range map[string]string{
		"completions":     `data: {"error":{"message":"no","type":"api_error","param":null,"code":"stream_cut"}}`,
		"responses":       `event: error` + "\n" + `data: {"type":"error","sequence_number":3,"code":"stream_cut","message":"no","param":null,"error":{"message":"no","type":"api_error"}}`,
		"OpenAI's events": `data: {"type": "error", "code": null, "message": "no", "param": null, "sequence_number": 3}`,
		"messages":        `event: error` + "\n" + `data: {"type":"error","error":{"type":"api_error","message":"no"}}`,
		"a text":          `data: {"error":"no"}`,
	} {
		h := newHandler(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {}\n\n"+event+"\n\n")
		})
		got := post(t.Context(), h, `{"input": [{}], "stream": true}`).Body.String()
		if want := "data: {}\n\ndata: {\"error\": \"no\"}\n\ndata: [DONE]\n\n"; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
