// Command testserver runs in images of the tests. The name under which it is called says which server it is:
//
//   - foreign is an ordinary program that greets, and no function.
//   - anyserver is for an image without a function: it says who it is at every path, echoes what comes over an upgraded
//     connection, and speaks HTTP/2 without TLS. With the word check it is its container's exec probe.
//   - greeter, or any other name, is the smallest function, to measure the path around it: /greet asks no model server.
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
