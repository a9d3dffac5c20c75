package pack

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
)

// static says why a program can't run where there is nothing but itself.
func static(program []byte) error {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("no program for Linux: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("linked dynamically, and the image has no libraries: build it with CGO_ENABLED=0")
		}
	}
	return nil
}
