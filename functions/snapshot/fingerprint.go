package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rouse-dev/rouse/functions/runtime"
)

// shells are variables that a shell sets by itself: they say how rouse was called.
var shells = []string{"_", "SHLVL", "PWD", "OLDPWD"}

// fingerprint returns a digest of all that must be the same at a restore: the command line and environment, without what differs from
// start to start, the files that they name, criu, and the boot of the machine. A process does not survive another boot: its clocks
// would go backwards.
func (s *Snapshot) fingerprint(l runtime.Launch) string {
	varies := []string{}
	if s.cfg.Dir != "" {
		varies = append(varies, s.cfg.Dir, "$(DIR)")
	}
	if u, err := url.Parse(string(l.Endpoint)); err == nil && u.Port() != "" {
		varies = append(varies, u.Port(), "$(PORT)")
	}
	same := strings.NewReplacer(varies...)
	env := slices.DeleteFunc(slices.Sorted(slices.Values(l.Env)), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(shells, name)
	})
	h := sha256.New()
	for _, list := range [][]string{{l.Path}, l.Args, env} {
		fmt.Fprintln(h, len(list))
		for _, word := range list {
			fmt.Fprintf(h, "%q\n", same.Replace(word))
		}
	}
	for _, word := range append([]string{s.cfg.Program, l.Path}, l.Args...) {
		if _, value, found := strings.Cut(word, "="); found {
			word = value
		}
		if filepath.IsAbs(word) {
			identify(h, word)
		}
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	fmt.Fprintf(h, "%s%d\n", boot, os.Getuid())
	return hex.EncodeToString(h.Sum(nil))
}

// identify writes what changes with the content of a file, or of the files in a model's folder.
func identify(h io.Writer, path string) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case info.Mode().IsRegular():
		inode := uint64(0)
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			inode = st.Ino
		}
		fmt.Fprintf(h, "%q %d %d %d\n", path, info.Size(), info.ModTime().UnixNano(), inode)
	case info.IsDir():
		if _, err := os.Stat(filepath.Join(path, "config.json")); err != nil {
			return // another folder, whose files may change at any time
		}
		files, _ := os.ReadDir(path)
		for _, f := range files {
			if f.Type().IsRegular() || f.Type()&os.ModeSymlink != 0 {
				identify(h, filepath.Join(path, f.Name()))
			}
		}
	}
}
