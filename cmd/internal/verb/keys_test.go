package verb

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// keysCommand is the command for a file.
func keysCommand(file string) *cobra.Command {
	return Program{Name: "rouse"}.Keys(func(*cobra.Command) (KeysFile, error) { return KeysPath(file), nil }, func(*cobra.Command) {}, func(KeysFile) string { return "" })
}

// keys runs a command of keys on a file.
func keys(t *testing.T, file string, args ...string) (out string, err error) {
	t.Helper()
	cmd := keysCommand(file)
	var b bytes.Buffer
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	cmd.SetArgs(args)
	err = cmd.Execute()
	return b.String(), err
}

// TestCreateKey says where others may read the file that a key is written to.
func TestCreateKey(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"open.key": 0o644, "mine.key": 0o600} {
		out, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if err := out.Chmod(mode); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		cmd := keysCommand(filepath.Join(dir, "keys.yaml"))
		cmd.SetOut(out)
		cmd.SetErr(&said)
		cmd.SetArgs([]string{"create", name})
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		if warned := strings.Contains(said.String(), "chmod 600"); warned != (mode == 0o644) {
			t.Errorf("with mode %o: %s", mode, said.String())
		}
	}
}

// TestSetKey changes limits of a key by the command and by the API: what neither names stays.
func TestSetKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	if out, err := keys(t, file, "create", "alice", "--model", "a*", "--model", "b", "--tokens-per-day", "5", "--expires-in", "3d"); err != nil {
		t.Fatal(out, err)
	}
	list := func() string {
		t.Helper()
		out, err := keys(t, file, "list", "-o", "json")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(out), "")
	}
	if out, err := keys(t, file, "set", "alice", "--requests-per-minute", "60", "--model", "c"); err != nil || !strings.Contains(out, "The key alice is changed.") {
		t.Errorf("got %s, %v", out, err)
	}
	if got := list(); !strings.Contains(got, `"models":["c"],"requestsPerMinute":60,"tokensPerDay":5}`) || !strings.Contains(got, "expires") {
		t.Errorf("after keys set: %s", got)
	}
	if out, err := keys(t, file, "set", "alice", "--model", "", "--expires-in", "0"); err != nil {
		t.Error(out, err)
	}
	if got := list(); strings.Contains(got, "models") || strings.Contains(got, "expires") {
		t.Errorf("after all models and no end were set: %s", got)
	}
	for want, args := range map[string][]string{
		"say what to change": {"alice"}, "no key has that name: bob (rouse keys list)": {"bob", "--concurrent", "1"},
		`"-1" for "--concurrent"`: {"alice", "--concurrent", "-1"}, "3d or 2w": {"alice", "--expires-in", "soon"}, "want 0 or more": {"alice", "--expires-in", "-1h"},
	} {
		if _, err := keys(t, file, append([]string{"set"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("set %v: got %v, want %q", args, err, want)
		}
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		method, name, body, want string
		status                   int
	}{
		{http.MethodPost, "", `{"name":5}`, "name is a JSON number: want a string", 400},
		{http.MethodPatch, "alice", `{"concurrent":"many"}`, "concurrent is a JSON string: want a whole number", 400},
		{http.MethodPatch, "alice", `{"limit":1}`, `no field \"limit\"`, 400},
		{http.MethodPatch, "alice", `{"RequestsPerMinute":1}`, `no field \"RequestsPerMinute\"`, 400},
		{http.MethodPatch, "alice", `null`, "the patch is null", 400},
		{http.MethodPatch, "alice", `{"hash":"00"}`, "make another key", 400},
		{http.MethodPatch, "alice", `{"name":"bob"}`, "make another key", 400},
		{http.MethodPatch, "alice", `[]`, "it is a JSON array: want an object", 400},
		{http.MethodPatch, "bob", `{}`, "no key has that name", 404},
		{http.MethodPut, "alice", `{}`, "PATCH", 405},
		{http.MethodPatch, "alice", `{"concurrent":2,"tokensPerDay":null,"expires":"2030-01-02T03:04:05Z"}`, `"name":"alice"`, 200},
	} {
		w := httptest.NewRecorder()
		if tc.status == 200 {
			if now, _ := os.ReadFile(file); !bytes.Equal(now, before) {
				t.Errorf("refused changes left %s", now)
			}
		}
		ServeKeys(KeysPath(file)).ServeHTTP(w, httptest.NewRequest(tc.method, "/rouse/v1/keys?name="+tc.name, strings.NewReader(tc.body)))
		if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s %s: got %d %s, want %d and %q", tc.method, tc.body, w.Code, w.Body, tc.status, tc.want)
		}
	}
	if got := list(); !strings.Contains(got, `"expires":"2030-01-02T03:04:05Z","requestsPerMinute":60,"concurrent":2}`) {
		t.Errorf("after PATCH: %s", got)
	}
}

// TestKeysErrors: a conflict is with keys that are there; a file that can't be read or written is our failure.
func TestKeysErrors(t *testing.T) {
	dir := t.TempDir()
	good, bad, absent := filepath.Join(dir, "keys.yaml"), dir, filepath.Join(dir, "absent", "keys.yaml")
	if _, err := keys(t, good, "create", "alice"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		file, method, name, body string
		status                   int
	}{
		{good, http.MethodPost, "", `{"name":"alice"}`, http.StatusConflict},
		{good, http.MethodPost, "", `{"name":"bob","concurrent":-1}`, http.StatusConflict},
		{good, http.MethodPatch, "alice", `{"concurrent":-1}`, http.StatusConflict},
		{good, http.MethodDelete, "bob", ``, http.StatusNotFound},
		{bad, http.MethodGet, "", ``, http.StatusInternalServerError},
		{bad, http.MethodDelete, "alice", ``, http.StatusInternalServerError},
		{absent, http.MethodPost, "", `{"name":"bob"}`, http.StatusInternalServerError},
		{absent, http.MethodPatch, "alice", `{"concurrent":1}`, http.StatusInternalServerError},
	} {
		w := httptest.NewRecorder()
		ServeKeys(KeysPath(tc.file)).ServeHTTP(w, httptest.NewRequest(tc.method, "/rouse/v1/keys?name="+tc.name, strings.NewReader(tc.body)))
		if w.Code != tc.status {
			t.Errorf("%s %s in %s: got %d %s, want %d", tc.method, tc.body, tc.file, w.Code, w.Body, tc.status)
		}
	}
}

// TestKeysFolder checks that no folder is made for a file that a person names.
func TestKeysFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent")
	for _, args := range [][]string{{"create", "alice"}, {"set", "alice", "--concurrent", "1"}, {"revoke", "alice"}} {
		if _, err := keys(t, filepath.Join(dir, "keys.yaml"), args...); err == nil || !strings.Contains(err.Error(), "the folder "+dir+" does not exist") {
			t.Errorf("%v: got %v", args, err)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder was made")
	}
}
