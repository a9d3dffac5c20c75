package adapters

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// resolve returns the path for the runtime: 1. a reference is fetched; 2. a declared path without a root is not checked; 3. any other
// must exist and lie inside the root, after symbolic links are resolved.
func (r *Registry) resolve(ctx context.Context, a Adapter) (string, error) {
	switch {
	case a.Path == "":
		return "", api.BadRequest("path", `the adapter's path is empty: send {"path": "…"}`)
	case strings.Contains(a.Path, "://"): // 1.
		if r.cfg.Fetch == nil {
			return "", api.BadRequest("path", "the adapter's path %q is a reference, which is not fetched here: name a folder", a.Path)
		}
		path, err := r.cfg.Fetch(ctx, a.Path)
		if err != nil {
			return "", refusal(ctx, "fetch", a.Name, err)
		}
		return path, nil
	case r.cfg.Root == "" && a.declared: // 2.
		return a.Path, nil
	case r.cfg.Root == "":
		return "", api.Errorf(http.StatusForbidden, "", "this function has no folder of adapters: declare one as its adapter root")
	}
	return r.inside(a.Path) // 3.
}

// outside refuses a declared path outside the root, before a model is loaded for it. A missing path may appear later.
func (r *Registry) outside(path string) error {
	if r.cfg.Root == "" || strings.Contains(path, "://") {
		return nil
	}
	var refused *api.Error
	if _, err := r.inside(path); errors.As(err, &refused) && refused.Status == http.StatusForbidden {
		return err
	}
	return nil
}

func (r *Registry) inside(path string) (string, error) {
	outside := &api.Error{Status: http.StatusForbidden, Param: "path",
		Message: "the adapter's path " + path + " lies outside of the function's folder of adapters: name a path inside of it"}
	root, err := filepath.EvalSymlinks(r.cfg.Root)
	if err != nil {
		return "", api.Errorf(http.StatusInternalServerError, "", "the function's folder of adapters can't be opened: %v", err)
	}
	if root, err = filepath.Abs(root); err != nil {
		return "", api.Errorf(http.StatusInternalServerError, "", "the function's folder of adapters can't be opened: %v", err)
	}
	full := filepath.Clean(path)
	if strings.ContainsRune(path, 0) {
		return "", api.BadRequest("path", "the adapter's path has a zero byte in it")
	}
	if !filepath.IsAbs(path) {
		full = filepath.Join(root, path)
	}
	// A path outside is refused before the answer could reveal whether it exists.
	if !under(full, root) && !under(full, filepath.Clean(r.cfg.Root)) {
		return "", outside
	}
	resolved, err := filepath.EvalSymlinks(full)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", &api.Error{Status: http.StatusNotFound, Param: "path", Message: "the adapter's path " + path + " is not there; a relative one counts from " + root}
	case err != nil:
		return "", api.BadRequest("path", "the adapter's path %s can't be opened: %v", path, err)
	case !under(resolved, root):
		return "", outside
	}
	return resolved, nil
}

func under(path, root string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && rel != "." && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
