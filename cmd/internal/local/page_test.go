package local_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
	"github.com/rouse-dev/rouse/cmd/internal/local"
)

// TestThePage is for browsers, and its token for this server's own page: no other may ask, and no answer names one.
func TestThePage(t *testing.T) {
	s := start(t, func(c *local.Config) { c.Origins = []string{"*"} })
	for accept, page := range map[string]bool{"text/html,application/xhtml+xml;q=0.9": true, "application/json": false, "*/*": false, "": false} {
		status, body := s.send(http.MethodGet, api.Endpoint(s.info.URL), "/", "", "Accept", accept)
		if got := strings.HasPrefix(body, "<!doctype html>"); status != http.StatusOK || got != page || !page && body != "Rouse is running\n" {
			t.Errorf("Accept %q: status %d: %.60s", accept, status, body)
		}
	}
	_, token, _ := strings.Cut(s.info.Page, "#token=")
	bearer := []string{"Authorization", "Bearer " + token}
	for name, tc := range map[string]struct {
		header []string
		status int
	}{
		"the page":             {append([]string{"Origin", s.info.URL, "Sec-Fetch-Site", "same-origin"}, bearer...), http.StatusOK},
		"no page":              {bearer, http.StatusOK},
		"no token":             {nil, http.StatusNotFound},
		"another token":        {[]string{"Authorization", "Bearer " + token + "x"}, http.StatusNotFound},
		"another origin":       {append([]string{"Origin", "https://evil.example"}, bearer...), http.StatusForbidden},
		"another port of ours": {append([]string{"Origin", "http://localhost:3000"}, bearer...), http.StatusForbidden},
		"a page of nowhere":    {append([]string{"Origin", "null"}, bearer...), http.StatusForbidden},
		"a site beside it":     {append([]string{"Sec-Fetch-Site", "same-site"}, bearer...), http.StatusForbidden},
		"a foreign site":       {append([]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, bearer...), http.StatusForbidden},
	} {
		if status, body := s.send(http.MethodGet, api.Endpoint(s.info.URL), admin.PathFunctions, "", tc.header...); status != tc.status {
			t.Errorf("%s: status %d: %s; want %d", name, status, body, tc.status)
		}
		resp, _ := s.ask(http.MethodGet, admin.PathFunctions, "", tc.header...)
		if got := resp.Header.Get(allowOrigin); got != "" && tc.status != http.StatusNotFound {
			t.Errorf("%s: %s may read the answer", name, got)
		}
	}
	if status, body := s.send(http.MethodPost, api.Endpoint(s.info.URL), "/v1/chat/completions", question); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	if status, body := s.send(http.MethodGet, api.Endpoint(s.info.URL), admin.PathRequests+"?tail=1", "", bearer...); status != http.StatusOK || !strings.Contains(body, `"model":"pico"`) || strings.Contains(body, "content") {
		t.Errorf("requests: status %d: %s", status, body)
	}
}
