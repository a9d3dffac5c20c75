package signin_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/cmd/internal/page/signin"
)

// TestConfig: what would let in nobody, everybody, or secrets out.
func TestConfig(t *testing.T) {
	good := signin.Config{URL: pageURL, Issuer: issuer, ClientID: "rouse", Groups: []string{"operators"}, Log: slog.New(slog.DiscardHandler)}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*signin.Config){
		"nobody may sign in":   func(c *signin.Config) { c.Groups = nil },
		"--oidc-client-id":     func(c *signin.Config) { c.ClientID = "" },
		"--allow-group":        func(c *signin.Config) { c.Groups = []string{" "} },
		`--allow-email "@"`:    func(c *signin.Config) { c.Emails = []string{"@"} },
		`--allow-email "*"`:    func(c *signin.Config) { c.Emails = []string{"*"} },
		`--allow-email "a@*"`:  func(c *signin.Config) { c.Emails = []string{"a@*"} },
		"want https":           func(c *signin.Config) { c.URL = "http://rouse.example" },
		"--oidc-issuer http":   func(c *signin.Config) { c.Issuer = "http://id.example" },
		"want no path":         func(c *signin.Config) { c.URL = pageURL + "/rouse" },
		`--url ""`:             func(c *signin.Config) { c.URL = "" },
		`--url "https://a:b@c`: func(c *signin.Config) { c.URL = "https://a:b@c" },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for _, own := range []string{"http://localhost:8090", "http://127.0.0.1:8090", "http://[::1]:8090/"} {
		c := good
		c.URL, c.Issuer = own, own
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
}
