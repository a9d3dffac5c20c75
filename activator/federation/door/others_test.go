package door_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/activator/federation/door"
	"github.com/rouse-dev/rouse/api/control"
)

// TestUsageOfStrangers: use is heard only from a declared front door that shows its own token.
func TestUsageOfStrangers(t *testing.T) {
	f, err := door.New(door.Config{Name: "x"}, door.Deps{Activator: &activator.Activator{}})
	if err != nil {
		t.Fatal(err)
	}
	other, cluster := declared("y", "token-y", "*/*"), declared("desk", "token-desk", "*/*")
	other.Front = true
	if err := f.Declare([]door.Declaration{other, cluster}); err != nil {
		t.Fatal(err)
	}
	s := f.Share(&agent.Config{Cluster: "x", Token: func() (string, error) { return "token-x", nil }})
	s.Tell(noUse{}, noUse{})
	for _, c := range []struct {
		token, body string
		want        int
	}{
		{"token-y", `{"from":"y","run":"1"}`, 200},
		{"token-desk", `{"from":"y","run":"1"}`, 401},
		{"token-desk", `{"from":"desk","run":"1"}`, 401}, // no front door
		{"token-y", `{"from":"z","run":"1"}`, 401},
		{"", `{"from":"y","run":"1"}`, 401},
		{"token-y", `{"from":"y"}`, 400},
		{"token-y", `{"from":`, 400},
		{"token-y", `{"from":"y","run":"1","parts":[{"number":1,"accounts":{"k":{"requests":1e999}}}]}`, 400},
	} {
		sent := strings.NewReader(c.body)
		r := httptest.NewRequest(http.MethodPost, control.PathUsage, sent)
		r.Header.Set("Authorization", "Bearer "+c.token)
		w := httptest.NewRecorder()
		f.ServeUsage(w, r)
		if w.Code != c.want {
			t.Errorf("%s with %q: %d %s, want %d", c.body, c.token, w.Code, w.Body, c.want)
		}
		if at, err := sent.Seek(0, io.SeekCurrent); c.token != "token-y" && (at != 0 || err != nil) {
			t.Errorf("%d bytes of a stranger's body were read, %v", at, err)
		}
	}
}

// noUse learns nothing.
type noUse struct{}

func (noUse) Learn(string, control.Use, bool)     {}
func (noUse) All() map[string]control.Use         { return nil }
func (noUse) Budgets() map[string]control.Budget  { return nil }
func (noUse) LearnBudget(string, control.Budget)  {}
func (noUse) ServedElsewhere(u control.ClientUse) {}
