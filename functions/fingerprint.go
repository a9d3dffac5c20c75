package functions

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/functions/runtime"
)

// fingerprint returns a digest of all that must be the same at a restore: command line and environment, the files that they name, criu,
// and the boot of the machine. The port, which differs from start to start, is left out. A process does not
// survive another boot: its clocks would go backwards.
func (s *snapshot) fingerprint(l runtime.Launch) string {
	varies := []string{}
	if u, err := url.Parse(string(l.Endpoint)); err == nil && u.Port() != "" {
		varies = append(varies, u.Port(), "$(PORT)")
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	h := sha256.New()
	fmt.Fprintf(h, "%s%d", boot, os.Getuid())
	same := strings.NewReplacer(varies...)
	for _, kv := range slices.Sorted(slices.Values(l.Env)) {
		if name, _, _ := strings.Cut(kv, "="); !slices.Contains([]string{"_", "SHLVL", "PWD", "OLDPWD"}, name) { // a shell's own
			fmt.Fprintf(h, "%q", same.Replace(kv))
		}
	}
	for _, word := range append([]string{s.program, l.Path}, l.Args...) {
		fmt.Fprintf(h, "%q", same.Replace(word))
		if _, value, found := strings.Cut(word, "="); found {
			word = value
		}
		files := []string{word}
		for _, pattern := range []string{"*.json", "*.safetensors"} { // of a model's folder
			found, _ := filepath.Glob(filepath.Join(word, pattern)) // a bad pattern is no path either
			files = append(files, found...)
		}
		for _, path := range files {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				fmt.Fprintf(h, "%q %d %d", path, info.Size(), info.ModTime().UnixNano())
			}
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
