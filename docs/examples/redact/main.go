// Command redact is a function with pre- and post-processing: the model sees no
// e-mail addresses, and the client learns how many were taken out.
//
//	go run ./docs/examples/redact --runtime ollama --model qwen2.5:0.5b
package main

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strconv"

	"github.com/rouse-dev/rouse/functions/cli"
)

var address = regexp.MustCompile(`[\w.+-]+@[\w-]+(\.[\w-]+)+`)

func redact(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		found := address.FindAllIndex(body, -1)
		body = address.ReplaceAll(body, []byte("[address]"))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		w.Header().Set("X-Redacted", strconv.Itoa(len(found)))
		next.ServeHTTP(w, r) // streams pass through as they come
	})
}

func main() { cli.Main(redact) }
