// Command testserver runs in images of the tests. The name under which it is called says which server it is:
//
//   - foreign is an ordinary program that greets, as stock Knative runs it, and no function at all.
//   - anyserver knows nothing of Rouse or of models, for an image without a function in it. It says who it is at every
//     path, echoes what comes over an upgraded connection, and speaks HTTP/2 without TLS. With the word check it is the
//     exec probe of its own container: it fails where the server does not answer.
//   - greeter, or any other name, is the smallest function there is, to measure the path around it. Requests for /greet
//     are answered by the function's own process, and no model server is asked.
package main

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/rouse-dev/rouse/functions/cli"
)

func main() {
	var err error
	switch port := cmp.Or(os.Getenv("PORT"), "8080"); filepath.Base(os.Args[0]) {
	case "foreign":
		err = http.ListenAndServe(":"+port, http.HandlerFunc(greet))
	case "anyserver":
		err = anyServer(port)
	default:
		cli.Main(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/greet") {
					greet(w, r)
					return
				}
				next.ServeHTTP(w, r)
			})
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testserver:", err)
		os.Exit(1)
	}
}

func greet(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }
