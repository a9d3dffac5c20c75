package local

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestRequestLog keeps the last requests, in order, and tells as many as are asked for.
func TestRequestLog(t *testing.T) {
	var l requestLog
	log := slog.New(&l)
	ask := func(query string) (ids []string) {
		t.Helper()
		w := httptest.NewRecorder()
		l.serve(w, httptest.NewRequest(http.MethodGet, "/"+query, nil))
		var lines []struct {
			Request string `json:"request"`
			Status  int    `json:"status"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &lines); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
		for _, line := range lines {
			if line.Status != http.StatusOK {
				t.Errorf("a line has the status %d", line.Status)
			}
			ids = append(ids, line.Request)
		}
		return ids
	}
	if got := ask(""); len(got) != 0 {
		t.Errorf("there are %d before the first", len(got))
	}
	const n = keptRequests + 500
	for k := range n {
		log.Info("request", "request", fmt.Sprint(k), "status", http.StatusOK)
	}
	got := ask("")
	if len(got) != keptRequests || got[0] != fmt.Sprint(n-keptRequests) || got[keptRequests-1] != fmt.Sprint(n-1) {
		t.Errorf("%d are kept, from %s to %s", len(got), got[0], got[len(got)-1])
	}
}
