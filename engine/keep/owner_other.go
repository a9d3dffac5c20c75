//go:build !unix

package keep

import (
	"fmt"
	"io/fs"
	"os"
	"time"
)

// mine returns true: there are no Unix owners, so the operator is responsible for the folder's permissions.
func mine(fs.FileInfo) bool { return true }

// identify returns an id that changes with a file's contents, without reading them, and the time of its last change.
func identify(path string) (id string, changed time.Time, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", changed, err
	}
	return fmt.Sprint(st.Size(), st.ModTime().UnixNano()), st.ModTime(), nil
}
