package cloudevent_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/internal/cloudevent"
)

func TestOverridesAreOnEveryEvent(t *testing.T) {
	o, err := cloudevent.ParseOverrides(`{"extensions":{"cluster":"east","team":"blue"}}`)
	if err != nil {
		t.Fatal(err)
	}
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer server.Close()
	s, err := cloudevent.NewSender(cloudevent.SenderConfig{URL: server.URL, Overrides: o})
	if err != nil {
		t.Fatal(err)
	}
	s.Emit(demand(1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // Run makes a last attempt for queued events
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if got.Get("ce-cluster") != "east" || got.Get("ce-team") != "blue" || got.Get("ce-subject") != "default/pico" {
		t.Errorf("the event has the headers %v, want ce-cluster east, ce-team blue and its own subject", got)
	}
}

func TestOverridesThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		`{"extensions":{"Team":"a"}}`:    `"Team"`,
		`{"extensions":{"my-team":"a"}}`: `"my-team"`,
		`{"extensions":{"":"a"}}`:        `""`,
		`{"extensions":{"subject":"a"}}`: `"subject"`,
		`{"extensions":{"n":1}}`:         "extensions",
		`{"extensions":{"n":"a\nb"}}`:    `"n"`,
		`{"extensions":{}} {}`:           "behind",
		`extensions: {}`:                 "K_CE_OVERRIDES",
	} {
		if _, err := cloudevent.ParseOverrides(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseOverrides(%s): %v, want an error with %s in it", text, err, want)
		}
	}
	for _, text := range []string{"", " ", "{}", `{"extensions":null}`, `{"other":1}`} {
		if o, err := cloudevent.ParseOverrides(text); err != nil || len(o.Extensions) != 0 {
			t.Errorf("ParseOverrides(%q): %v, %v; want no change and no error", text, o, err)
		}
	}
}
