package server

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
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

// TestLogsOfOne: every line is passed on, the empty ones too, and why there is nothing is an error.
func TestLogsOfOne(t *testing.T) {
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
		s := NewAdmin(AdminConfig{Decider: one{}, Logs: func(context.Context, admin.Function, int, bool) (func(func(string) error), error) {
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

// several has functions: two with an instance, one that failed, and one that was never asked for.
type several struct{ Decider }

func (several) List() []admin.Function {
	awake := []api.InstanceStatus{{State: api.Awake}}
	return []admin.Function{{Function: api.Function{Name: "default/a"}, Instances: awake}, {Function: api.Function{Name: "default/quiet"}},
		{Function: api.Function{Name: "default/mute"}, Instances: awake}, {Function: api.Function{Name: "team/b"}, LastError: "exit status 1"}}
}

// TestLogsOfAll: the lines of all functions that may have printed something, each whole, in its own order and with its name. A function
// whose output can't be read is left out.
func TestLogsOfAll(t *testing.T) {
	const each = 200
	s := NewAdmin(AdminConfig{Decider: several{}, Logs: func(_ context.Context, v admin.Function, n int, follow bool) (func(func(string) error), error) {
		if n != 7 || !follow {
			t.Errorf("%s: tail %d, follow %v", v.Function.Name, n, follow)
		}
		if v.Function.Name == "default/mute" {
			return nil, errors.New("no instance answers")
		}
		return func(line func(string) error) {
			for k := range each {
				if err := line(strconv.Itoa(k)); err != nil {
					t.Error(err)
				}
			}
		}, nil
	}})
	r := mux.NewRouter()
	s.Routes(r, func(h http.HandlerFunc) http.HandlerFunc { return h })
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, admin.PathFunctions+"/logs?tail=7&follow=true", nil))
	next := map[string]int{}
	for line := range strings.Lines(w.Body.String()) {
		name, text, _ := strings.Cut(line, "  ")
		if want := strconv.Itoa(next[name]) + "\n"; text != want {
			t.Fatalf("%s: got %q, want %q", name, text, want)
		}
		next[name]++
	}
	if want := map[string]int{"default/a": each, "team/b": each}; !maps.Equal(next, want) {
		t.Errorf("got lines of %v, want %v", next, want)
	}
}

// recorded has a record: some bytes, and then perhaps an error.
type recorded struct {
	Decider
	bytes string
	err   error
}

func (r recorded) CopyRecord(w io.Writer) error {
	if r.bytes != "" {
		_, _ = io.WriteString(w, r.bytes) // the caller of the test sees it
	}
	return r.err
}

// TestRecord: what is recorded is passed on as it is; why there is nothing is an error, and what breaks off is cut and no whole answer.
func TestRecord(t *testing.T) {
	for _, tt := range []struct {
		decider recorded
		status  int
		want    string
		cut     bool
	}{
		{recorded{bytes: "ab\x00c"}, http.StatusOK, "ab\x00c", false},
		{recorded{}, http.StatusOK, "", false},
		{recorded{err: api.Errorf(404, "", "nothing is recorded")}, http.StatusNotFound, "", false},
		{recorded{bytes: "ab", err: errors.New("the disk is gone")}, http.StatusOK, "ab", true},
	} {
		r := mux.NewRouter()
		NewAdmin(AdminConfig{Decider: tt.decider}).Routes(r, func(h http.HandlerFunc) http.HandlerFunc { return h })
		server := httptest.NewServer(r)
		resp, err := server.Client().Get(server.URL + admin.PathRecord)
		if err != nil {
			if !tt.cut { // one that is cut early enough has no answer at all
				t.Errorf("%+v: %v", tt.decider, err)
			}
			server.Close()
			continue
		}
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != tt.status || tt.status == http.StatusOK && !tt.cut && string(body) != tt.want || (err != nil) != tt.cut {
			t.Errorf("%+v: got %d %q, %v", tt.decider, resp.StatusCode, body, err)
		}
		resp.Body.Close()
		server.Close()
	}
}
