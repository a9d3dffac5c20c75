package main

import (
	"archive/zip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// online is Go's database; brought is the archive in the repository.
const (
	online  = "https://vuln.go.dev"
	brought = "internal/vuln/db.zip"
)

// old is the age from which a database is unreliable.
const old = 90 * 24 * time.Hour

type check struct {
	db, tool       string
	packages       []string
	stdout, stderr io.Writer
}

type meta struct {
	Modified time.Time `json:"modified"`
}

func (c *check) run(ctx context.Context) error {
	db := c.db
	if db == "" {
		if db = online; !reachable(ctx) {
			db = brought
			fmt.Fprintf(c.stdout, "%s can't be reached: the database in the repository is asked\n", online)
		}
	}
	if !strings.Contains(db, "://") {
		folder, done, err := c.local(db)
		if err != nil {
			return err
		}
		defer done()
		if err := c.age(folder, db); err != nil {
			return err
		}
		if err := c.uncovered(ctx, folder); err != nil {
			return err
		}
		db = (&url.URL{Scheme: "file", Path: filepath.ToSlash(folder)}).String()
	}
	cmd := exec.CommandContext(ctx, c.tool, append([]string{"-db", db}, c.packages...)...)
	cmd.Stdout, cmd.Stderr = c.stdout, c.stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s with the database %s: %w", c.tool, db, err)
	}
	return nil
}

func reachable(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, online+"/index/db.json", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// local returns the absolute folder of a database; an archive is unpacked until done is called.
func (c *check) local(db string) (folder string, done func(), err error) {
	info, err := os.Stat(db)
	if err != nil {
		return "", nil, fmt.Errorf("the database: %w: make one with \"go run ./internal/vuln pack\"", err)
	}
	if info.IsDir() {
		folder, err = filepath.Abs(db)
		return folder, func() {}, err
	}
	archive, err := zip.OpenReader(db)
	if err != nil {
		return "", nil, fmt.Errorf("the database %s: %w", db, err)
	}
	defer func() { _ = archive.Close() }() // opened for reading only
	if folder, err = os.MkdirTemp("", "vulndb-"); err != nil {
		return "", nil, err
	}
	done = func() { _ = os.RemoveAll(folder) } // a temporary folder
	if err := os.CopyFS(folder, archive); err != nil {
		done()
		return "", nil, fmt.Errorf("unpack the database %s: %w", db, err)
	}
	return folder, done, nil
}

func (c *check) age(folder, name string) error {
	var m meta
	if err := readJSON(filepath.Join(folder, "index", "db.json"), &m); err != nil {
		return fmt.Errorf("the database %s says nothing of its age: %w", name, err)
	}
	age := time.Since(m.Modified)
	fmt.Fprintf(c.stdout, "the database %s is of %s, %d days old\n", name, m.Modified.Format(time.DateOnly), int(age.Hours()/24))
	if age > old {
		fmt.Fprintf(c.stdout, "WARNING: that is more than %d days: vulnerabilities found since then are not known here; pack a newer one (internal/vuln/doc.go)\n", int(old.Hours()/24))
	}
	return nil
}

// uncovered prints the modules of this build that a packed database does not cover.
func (c *check) uncovered(ctx context.Context, folder string) error {
	var covered []string
	if err := readJSON(filepath.Join(folder, "covered.json"), &covered); err != nil {
		if os.IsNotExist(err) {
			return nil // it covers everything
		}
		return err
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...").Output()
	if err != nil {
		return fmt.Errorf("list the modules: %w", err)
	}
	modules := slices.Sorted(strings.FieldsSeq(string(out)))
	for _, m := range slices.Compact(modules) {
		if !slices.Contains(covered, m) && !strings.HasPrefix(m, "github.com/rouse-dev/rouse") {
			fmt.Fprintf(c.stdout, "WARNING: the database was not made for the module %s: nothing is known of it\n", m)
		}
	}
	return nil
}

func readJSON(file string, into any) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}

func entries(folder string) ([]string, error) {
	var all []string
	err := filepath.WalkDir(folder, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasPrefix(e.Name(), "GO-") && strings.HasSuffix(e.Name(), ".json") {
			all = append(all, p)
		}
		return err
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("there is no entry GO-….json below %s", folder)
	}
	return all, err
}
