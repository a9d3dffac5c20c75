package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain acts as govulncheck if a test asks for it: it prints its arguments and the database's entries.
func TestMain(m *testing.M) {
	if os.Getenv("VULN_TEST_TOOL") == "" {
		os.Exit(m.Run())
	}
	folder := strings.TrimPrefix(os.Args[2], "file://")
	var modules []module
	if err := readJSON(filepath.Join(folder, "index", "modules.json"), &modules); err != nil {
		fmt.Println(err)
		os.Exit(4)
	}
	for _, m := range modules {
		for _, v := range m.Vulns {
			if _, err := os.Stat(filepath.Join(folder, "ID", v.ID+".json")); err != nil {
				fmt.Println(err)
				os.Exit(4)
			}
			fmt.Println("knows", v.ID, "of", m.Path)
		}
	}
	fmt.Println("looks at", os.Args[3:])
	os.Exit(3) // govulncheck's status for findings
}

// osv writes an entry of a module.
func osv(t *testing.T, folder, id, of string) {
	t.Helper()
	raw := fmt.Sprintf(`{"id": %q, "modified": "0001-01-01T00:00:00Z", "details": "long", "affected": [
		{"package": {"name": %q, "ecosystem": "Go"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}]}]}`, id, of)
	if err := os.WriteFile(filepath.Join(folder, id+".json"), []byte(raw), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestACheckWithoutANetwork checks with a packed database that its age is printed and that findings set the exit
// status.
func TestACheckWithoutANetwork(t *testing.T) {
	t.Chdir("../..")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("VULN_TEST_TOOL", "1")
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "db.zip")
	osv(t, from, "GO-2026-0001", "github.com/gorilla/mux")
	osv(t, from, "GO-2026-0002", "example.com/nobody/has/it")
	osv(t, from, "GO-2026-0003", "stdlib")
	for _, test := range []struct {
		age  time.Duration
		warn bool
	}{{10 * 24 * time.Hour, false}, {100 * 24 * time.Hour, true}} {
		date := time.Now().Add(-test.age).UTC().Format(time.DateOnly)
		if err := run(t.Context(), []string{"pack", "-from", from, "-date", date, "-to", to}, nil, os.Stderr); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err := run(t.Context(), []string{"check", "-db", to, "-govulncheck", self, "./api"}, &out, &out)
		if err == nil || !strings.Contains(err.Error(), "exit status 3") {
			t.Errorf("got %v, want govulncheck's status", err)
		}
		for _, want := range []string{"is of " + date, fmt.Sprintf("%d days old", int(test.age.Hours()/24)), "knows GO-2026-0001 of github.com/gorilla/mux", "knows GO-2026-0003 of stdlib", "looks at [./api]"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("it does not say %q:\n%s", want, &out)
			}
		}
		if strings.Contains(out.String(), "GO-2026-0002") {
			t.Errorf("it has an entry of a module that nobody uses:\n%s", &out)
		}
		if got := strings.Contains(out.String(), "more than 90 days"); got != test.warn {
			t.Errorf("%v old: warns %t", test.age, got)
		}
	}
}

// TestTheDatabaseInTheRepository checks that the packed database is valid and covers the current modules.
func TestTheDatabaseInTheRepository(t *testing.T) {
	t.Chdir("../..")
	c := &check{stdout: &bytes.Buffer{}}
	folder, done, err := c.local(brought)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	var modules []module
	if err := readJSON(filepath.Join(folder, "index", "modules.json"), &modules); err != nil || len(modules) < 10 {
		t.Fatalf("%d modules, %v", len(modules), err)
	}
	for _, m := range modules {
		for _, v := range m.Vulns {
			raw, err := os.ReadFile(filepath.Join(folder, "ID", v.ID+".json"))
			if err != nil || !json.Valid(raw) {
				t.Errorf("%s: %v", v.ID, err)
			}
		}
	}
}

func TestNothingPassesUnseen(t *testing.T) {
	for _, args := range [][]string{{}, {"look"}, {"check", "-db", "no-such.zip"}, {"check", "-db", t.TempDir()}, {"pack", "-from", t.TempDir(), "-date", "2026-01-01"}, {"pack", "-date", "today"}} {
		var out bytes.Buffer
		if err := run(t.Context(), args, &out, &out); err == nil {
			t.Errorf("%q passes: %s", args, &out)
		}
	}
}
