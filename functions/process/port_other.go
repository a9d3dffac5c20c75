//go:build !linux

package process

import (
	"io"
	"strings"
)

func reserve(int) (io.Closer, error) { return io.NopCloser(strings.NewReader("")), nil }
