// Package vuln_test tests check, which looks for known vulnerabilities.
package vuln_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// check runs the check with a tool that prints what it is called with, and the number of entries of its database.
func check(t *testing.T, environment ...string) (string, error) {
	t.Helper()
	bin := t.TempDir()
	for name, script := range map[string]string{
		"tool": "echo called with \"$@\"; ls ${2#file://}/ID | wc -l; exit 3", // govulncheck's status for findings
		"curl": "exit 6",                                                      // there is no network
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "./check", filepath.Join(bin, "tool"), "./api")
	cmd.Env = append(append(os.Environ(), "VULNDB=", "PATH="+bin+":"+os.Getenv("PATH")), environment...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func found(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == 3
}

// TestWithoutANetwork checks that the database of the repository is used, that what it does not cover is said, and that
// the exit status is the tool's.
func TestWithoutANetwork(t *testing.T) {
	out, err := check(t)
	if !found(err) || !strings.Contains(out, "called with -db file://") || !strings.Contains(out, " ./api\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(out, "vuln.go.dev can't be reached") || !strings.Contains(out, "the database is of 20") {
		t.Errorf("its source and age are not printed:\n%s", out)
	}
}

// TestAge: an old database is a warning, as is a module that it was not made for.
func TestAge(t *testing.T) {
	for days, warns := range map[int]bool{10: false, 100: true} {
		db := t.TempDir()
		at := time.Now().AddDate(0, 0, -days).UTC()
		for name, content := range map[string]string{"index/db.json": fmt.Sprintf(`{"modified":%q}`, at.Format(time.RFC3339)), "ID/GO-2026-0001.json": "{}", "covered.json": `["stdlib","github.com/gorilla/mux"]`} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(db, name)), 0o700), os.WriteFile(filepath.Join(db, name), []byte(content), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		out, err := check(t, "VULNDB="+db)
		if !found(err) || !strings.Contains(out, "called with -db file://"+db) {
			t.Errorf("%v\n%s", err, out)
		}
		if !strings.Contains(out, "is of "+at.Format(time.DateOnly)) || strings.Contains(out, "are not known here") != warns {
			t.Errorf("%d days: %s", days, out)
		}
		if !strings.Contains(out, "was not made for the module github.com/spf13/cobra\n") || strings.Contains(out, "for the module github.com/gorilla/mux\n") {
			t.Errorf("what it covers: %s", out)
		}
	}
}

// TestTheDatabaseInTheRepository has each entry that its index names.
func TestTheDatabaseInTheRepository(t *testing.T) {
	db := t.TempDir()
	if out, err := exec.Command("tar", "-xzf", "db.tar.gz", "-C", db).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	index, err := os.ReadFile(filepath.Join(db, "index", "modules.json"))
	if err != nil {
		t.Fatal(err)
	}
	ids := strings.Split(string(index), `"id":"`)[1:]
	if len(ids) < 10 {
		t.Fatalf("%d entries", len(ids))
	}
	for _, text := range ids {
		id, _, _ := strings.Cut(text, `"`)
		if _, err := os.Stat(filepath.Join(db, "ID", id+".json")); err != nil {
			t.Error(err)
		}
	}
}

func TestNothingPassesUnseen(t *testing.T) {
	for _, db := range []string{"no-such-folder", t.TempDir()} {
		if out, err := check(t, "VULNDB="+db); err == nil || strings.Contains(out, "called with") {
			t.Errorf("%s passes: %v\n%s", db, err, out)
		}
	}
}
