package disk

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
)

// mostText bounds the files that a person writes.
const mostText = 16 << 20

// ReadText reads a file that a person writes, such as a manifest. A model, or another large file, is refused before it fills the memory.
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
