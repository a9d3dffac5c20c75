package disk

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"
)

const mostText = 16 << 20

// ReadText reads a file that a person writes. A model, or another large file, is refused.
func ReadText(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Text(f, path)
}

// Text is [ReadText] of an open file.
func Text(in io.Reader, name string) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(in, mostText+1))
	if err == nil && (len(raw) > mostText || bytes.HasPrefix(raw, []byte("GGUF"))) {
		err = fmt.Errorf("%s is a model, which --model takes, or another large file: want a text", name)
	}
	return raw, err
}

// ReadToken reads the token in a file, without white space around it.
func ReadToken(path string) (string, error) {
	raw, err := ReadText(path)
	token := strings.TrimSpace(string(raw))
	if err == nil && (token == "" || strings.ContainsAny(token, "\x00\r\n")) {
		err = fmt.Errorf("%s has no token: want one line", path)
	}
	return token, err
}

// Follow calls apply with a file's content whenever that changes, until ctx ends. taken is the content that was applied
// last. apply returns how many things the file declares. It polls: no notification covers all the ways in which a file in a
// mounted volume is replaced. A change must be seen twice: the file may be half written.
func Follow(ctx context.Context, path string, interval time.Duration, read func(path string) ([]byte, error), taken []byte, apply func(raw []byte) (n int, err error), what string, log *slog.Logger) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	last, fault := taken, ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		raw, err := read(path)
		settled := err != nil || bytes.Equal(raw, last)
		last = raw
		if !settled || err == nil && bytes.Equal(raw, taken) {
			continue
		}
		n := 0
		if err == nil {
			n, err = apply(raw)
		}
		switch {
		case err == nil:
			taken, fault = raw, ""
			log.Info("the "+what+" were read again", "file", path, what, n)
		case err.Error() != fault:
			fault = err.Error()
			log.Error("the "+what+" stay as they were", "file", path, "error", err)
		}
	}
}
