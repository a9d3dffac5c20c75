package control_test

import (
	"testing"

	"github.com/rouse-dev/rouse/api/control"
)

func TestHeadersThatAreNotTheClients(t *testing.T) {
	for name, want := range map[string]struct{ reserved, credential bool }{
		"X-Rouse-Wait": {true, false}, "K-Revision": {true, false}, "Knative-Serving-Revision": {true, false}, "Ce-Id": {true, false}, "Server-Timing": {true, false},
		"Authorization": {false, true}, "Cookie": {false, true}, "X-Api-Key": {false, true},
		// Names that are equal behind CGI are equal.
		"X_rouse_tenant": {true, false}, "X_rouse-Wait": {true, false}, "Knative_serving_revision": {true, false}, "Server_timing": {true, false}, "X_api_key": {false, true},
		"X-Roused": {}, "Keep": {}, "Cent": {}, "X-Tag": {}, "": {}, "_": {}, "Content_type": {},
	} {
		if got := control.Reserved(name); got != want.reserved {
			t.Errorf("%s: reserved is %t", name, got)
		}
		if got := control.Credential(name); got != want.credential {
			t.Errorf("%s: credential is %t", name, got)
		}
	}
}
