//go:build !unix

package gguf

import (
	"io"
	"os"
)

func mapBytes(f *os.File, size int) ([]byte, error) {
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, err
	}
	return data, nil
}

func unmap([]byte) error { return nil }

func releasePages([]byte) error { return nil }
