package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// A runtime's description of its models names files of its host, which clients must not learn. Such answers are read whole, and each
// path is replaced by its last element.

// maxDescription bounds a description: one with a tokenizer's whole vocabulary takes some MiB.
const maxDescription = 64 << 20

// describe passes on a description of models without paths.
func (x *exchange) describe(ctx context.Context, resp *http.Response) {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxDescription+1))
	switch {
	case err != nil:
		x.brokenBeforeFirstByte(ctx, err)
		return
	case len(raw) > maxDescription:
		x.fail(api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime describes its model in more than %s", api.Bytes(maxDescription)))
		return
	}
	x.cfg.Gate.Moved()
	text := withoutPlaces(raw)
	resp.Header.Set("Content-Length", strconv.Itoa(len(text)))
	x.header(resp)
	if x.r.Method != http.MethodHead {
		x.write(text)
	}
}

// withoutPlaces returns JSON with each string that is a path, or a line of a Modelfile that names one, reduced to the path's last
// element. All other bytes, and anything that is not JSON, stay.
func withoutPlaces(raw []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var out []byte
	copied := 0
	for {
		before := dec.InputOffset()
		token, err := dec.Token()
		if err != nil {
			return append(out, raw[copied:]...)
		}
		text, isText := token.(string)
		if !isText {
			continue
		}
		short := withoutPlace(text)
		if short == text {
			continue
		}
		start := int(before) + bytes.IndexByte(raw[before:], '"')
		quoted, _ := json.Marshal(short) // a string always marshals
		out = append(append(out, raw[copied:start]...), quoted...)
		copied = int(dec.InputOffset())
	}
}

func withoutPlace(text string) string {
	if strings.HasPrefix(text, "/") && !strings.ContainsAny(text, "\n") {
		return path.Base(text)
	}
	if !strings.Contains(text, "FROM ") && !strings.Contains(text, "ADAPTER ") {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		word, rest, _ := strings.Cut(strings.TrimPrefix(line, "# "), " ")
		if place := strings.Trim(rest, `" `); (word == "FROM" || word == "ADAPTER") && strings.HasPrefix(place, "/") {
			lines[i] = strings.Replace(line, place, path.Base(place), 1)
		}
	}
	return strings.Join(lines, "\n")
}
