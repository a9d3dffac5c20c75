package adminserver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gorilla/mux"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// one knows one function.
type one struct{ Decider }

func (one) Status(name api.FunctionName) (admin.Function, bool) {
	return admin.Function{Function: api.Function{Name: name}}, name == "default/tiny"
}

// TestLogs: every line is passed on, the empty ones too, and why there is nothing is an error.
func TestLogs(t *testing.T) {
	for name, tc := range map[string]struct {
		lines  []string
		err    error
		status int
		want   string
	}{
		"lines":   {[]string{"a", "", "b"}, nil, http.StatusOK, "a\n\nb\n"},
		"none":    {nil, nil, http.StatusOK, ""},
		"refused": {nil, errors.New("no instance answers"), http.StatusInternalServerError, ""},
	} {
		s := New(Config{Decider: one{}, Logs: func(context.Context, admin.Function, int, bool) (func(func(string) error), error) {
			return func(line func(string) error) {
				for _, l := range tc.lines {
					if err := line(l); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			}, tc.err
		}})
		r := mux.NewRouter()
		s.Routes(r, func(h http.HandlerFunc) http.HandlerFunc { return h })
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, admin.FunctionPath("default/tiny", "/logs"), nil))
		if w.Code != tc.status || tc.err == nil && w.Body.String() != tc.want {
			t.Errorf("%s: got %d %q, want %d %q", name, w.Code, w.Body, tc.status, tc.want)
		}
	}
}
