package disk_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/internal/disk"
)

// tree creates files, whose names do not end in a slash, and links, mapped to their targets.
func tree(t *testing.T, files []string, links map[string]string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	for _, f := range files {
		path := filepath.Join(root, f)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range links {
		if err := os.Symlink(to, filepath.Join(root, from)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func seen(t *testing.T, root, below string, skip map[string]error) (all []string) {
	t.Helper()
	err := disk.Walk(below, func(path string, info fs.FileInfo, err error) error {
		name, relErr := filepath.Rel(root, path)
		if relErr != nil {
			t.Fatal(relErr)
		}
		switch {
		case err != nil:
			name += " failed"
		case info.IsDir():
			name += "/"
		}
		all = append(all, name)
		return skip[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestFiles(t *testing.T) {
	root := tree(t, []string{"a/1", "a/2", "b/3", "c"}, map[string]string{
		"again": "b", "a/loop": "..", "a/self": ".", "broken": "nowhere", "file": "b/3", "0": "b", "ring": "ring",
	})
	want := []string{"./", "a/", "a/1", "a/2", "b/", "b/3", "broken failed", "c", "file", "ring failed"}
	if diff := cmp.Diff(want, seen(t, root, root, nil)); diff != "" {
		t.Error(diff)
	}
	// A folder reached only by links is seen under the first of them; the root may be a link.
	outside := tree(t, []string{"x/y", "z"}, nil)
	for from, to := range map[string]string{"in": outside, "in2": outside, "deep": filepath.Join(outside, "x")} {
		if err := os.Symlink(to, filepath.Join(root, "b", from)); err != nil {
			t.Fatal(err)
		}
	}
	want = []string{"0/", "0/3", "0/deep/", "0/deep/y", "0/in/", "0/in/z"}
	if diff := cmp.Diff(want, seen(t, root, filepath.Join(root, "0"), nil)); diff != "" {
		t.Error(diff)
	}
}

func TestSkip(t *testing.T) {
	root := tree(t, []string{"a/1", "a/2", "b/3", "c"}, map[string]string{"l": "b"})
	for what, tt := range map[string]struct {
		skip map[string]error
		want []string
	}{
		"a folder":         {map[string]error{"a/": fs.SkipDir}, []string{"./", "a/", "b/", "b/3", "c"}},
		"what is left":     {map[string]error{"a/1": fs.SkipDir}, []string{"./", "a/", "a/1", "b/", "b/3", "c"}},
		"everything":       {map[string]error{"a/2": fs.SkipAll}, []string{"./", "a/", "a/1", "a/2"}},
		"what is not read": {map[string]error{"b/": fs.SkipDir}, []string{"./", "a/", "a/1", "a/2", "b/", "c"}},
	} {
		if diff := cmp.Diff(tt.want, seen(t, root, root, tt.skip)); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	bad := errors.New("bad")
	if err := disk.Walk(root, func(string, fs.FileInfo, error) error { return bad }); !errors.Is(err, bad) {
		t.Errorf("got %v", err)
	}
	if err := disk.Walk(filepath.Join(root, "none"), func(_ string, _ fs.FileInfo, err error) error { return err }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
