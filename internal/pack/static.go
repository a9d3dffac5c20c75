package pack

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"strings"
)

// runnable returns an error if an entrypoint can't run in an image that has these paths.
func runnable(content []byte, has func(path string) bool) error {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("no program for Linux, and the image has no shell: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		raw, err := io.ReadAll(p.Open())
		if err != nil {
			return fmt.Errorf("read the program's interpreter: %w", err)
		}
		if !has(strings.TrimRight(string(raw), "\x00")) {
			return errors.New("linked dynamically, and the image has no libraries: build it with CGO_ENABLED=0, or add them")
		}
	}
	return nil
}
