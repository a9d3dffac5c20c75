package functions_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
)

// TestARequestBehindAWake is kept until the model is awake; others are refused at once.
func TestARequestBehindAWake(t *testing.T) {
	i := newInstance(t)
	i.run(i.config())
	i.until(api.Awake)
	if _, err := i.api.Sleep(t.Context(), i.at, control.SleepRequest{Level: 1, Epoch: 2}); err != nil {
		t.Fatal(err)
	}
	if resp, got, err := i.ask("/v1/completions", `{"model":"fake","prompt":"a"}`, ""); err != nil || resp.Header.Get(control.HeaderRefused) != api.CodeAsleep {
		t.Errorf("a request that nobody wakes it for: %v %s (%v), want a refusal", resp, got, err)
	}
	answered := make(chan *http.Response, 1)
	go func() {
		defer close(answered)
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, i.at.URL("/v1/completions"), strings.NewReader(`{"model":"fake","prompt":"a"}`))
		req.Header.Set(control.HeaderWait, "true")
		resp, err := i.http.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		resp.Body.Close()
		answered <- resp
	}()
	if _, err := i.api.Wake(t.Context(), i.at, api.Grant{Instance: "fake-0001", Epoch: 3}); err != nil {
		t.Fatal(err)
	}
	if resp := <-answered; resp == nil || resp.StatusCode != http.StatusOK {
		t.Errorf("got %v, want it answered", resp)
	}
}
