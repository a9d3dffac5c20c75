package peer_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rouse-dev/rouse/activator/peer"
	"github.com/rouse-dev/rouse/api/control"
)

func TestPeer(t *testing.T) {
	proxies, err := peer.ParseList("10.0.0.0/8, fd00::/8")
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := peer.ParseList("192.0.2.7,10.9.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	both := &peer.Addresses{Proxies: proxies, Trusted: trusted}
	for name, tc := range map[string]struct {
		finder    *peer.Addresses
		remote    string
		forwarded []string
		tenant    string
		want      peer.Peer
	}{
		"an address":                           {both, "203.0.113.5:1234", nil, "", peer.Peer{Client: "203.0.113.5"}},
		"an IPv4 address on an IPv6 socket":    {both, "[::ffff:203.0.113.5]:1234", nil, "", peer.Peer{Client: "203.0.113.5"}},
		"a household":                          {both, "[2001:db8:1:2:3:4:5:6]:1234", nil, "", peer.Peer{Client: "2001:db8:1:2::/64"}},
		"a Unix socket":                        {both, "@", nil, "", peer.Peer{Client: "local", Local: true}},
		"this machine":                         {both, "127.0.0.1:1", nil, "", peer.Peer{Client: "127.0.0.1", Local: true}},
		"no address":                           {both, "", []string{"203.0.113.5"}, "", peer.Peer{Client: "local", Local: true}},
		"who says so himself":                  {both, "203.0.113.5:1", []string{"198.51.100.1"}, "other", peer.Peer{Client: "203.0.113.5"}},
		"behind a proxy":                       {both, "10.1.2.3:1", []string{"203.0.113.5"}, "", peer.Peer{Client: "203.0.113.5"}},
		"behind two":                           {both, "10.1.2.3:1", []string{"198.51.100.1, 203.0.113.5", "10.7.7.7"}, "", peer.Peer{Client: "203.0.113.5"}},
		"with a port":                          {both, "10.1.2.3:1", []string{"203.0.113.5:77"}, "", peer.Peer{Client: "203.0.113.5"}},
		"IPv6 with a port":                     {both, "10.1.2.3:1", []string{"[2001:db8::1]:77"}, "", peer.Peer{Client: "2001:db8::/64"}},
		"a proxy that says nothing":            {both, "10.1.2.3:1", nil, "", peer.Peer{Client: "10.1.2.3"}},
		"a proxy that says what can't be read": {both, "10.1.2.3:1", []string{"198.51.100.1, unknown"}, "", peer.Peer{Client: "10.1.2.3"}},
		"nobody is a proxy":                    {&peer.Addresses{}, "10.1.2.3:1", []string{"203.0.113.5"}, "t", peer.Peer{Client: "10.1.2.3"}},
		"trusted":                              {both, "192.0.2.7:1", nil, "", peer.Peer{Client: "192.0.2.7", Trusted: true}},
		"trusted, for somebody":                {both, "192.0.2.7:1", nil, "acme", peer.Peer{Client: "tenant acme", Trusted: true}},
		"trusted, behind a proxy":              {both, "10.1.2.3:1", []string{"192.0.2.7"}, "acme", peer.Peer{Client: "tenant acme", Trusted: true}},
		"a trusted proxy, for who is not":      {both, "10.9.1.1:1", []string{"203.0.113.5"}, "acme", peer.Peer{Client: "203.0.113.5"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.RemoteAddr = tc.remote
			if tc.forwarded != nil {
				r.Header["X-Forwarded-For"] = tc.forwarded
			}
			if tc.tenant != "" {
				r.Header.Set(control.HeaderTenant, tc.tenant)
			}
			if got := tc.finder.Peer(r); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestParseList(t *testing.T) {
	for list, want := range map[string]int{"": 0, " ": 0, "10.0.0.1": 1, "10.0.0.1/8,::1": 2, "10.0.0.1,": 1} {
		if got, err := peer.ParseList(list); err != nil || len(got) != want {
			t.Errorf("%q: got %v, %v; want %d", list, got, err, want)
		}
	}
	for _, list := range []string{"example.com", "10.0.0.0/33", "*"} {
		if got, err := peer.ParseList(list); err == nil {
			t.Errorf("%q: got %v, want an error", list, got)
		}
	}
}

// TestPassed: a request's client does not change when it passes front doors, and an address does not become a tenant.
func TestPassed(t *testing.T) {
	for client, want := range map[string]string{
		"tenant acme": "tenant acme", "tenant tenant acme": "tenant acme", "192.0.2.7": "front 192.0.2.7", "front 192.0.2.7": "front 192.0.2.7", "local": "front local",
	} {
		got := peer.Passed(client)
		if got != want || peer.Passed(got) != want || peer.Tenant(got) != peer.Tenant(client) {
			t.Errorf("%q is passed on as %q, and then as %q of the tenant %q; want %q", client, got, peer.Passed(got), peer.Tenant(got), want)
		}
	}
}
