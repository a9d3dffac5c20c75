// Command greeter is the smallest function there is, to measure what is around
// it: requests for /greet are answered by the function's own process, and no model
// server is asked. With --plain it is an ordinary program that greets, as stock Knative
// runs it, and no function at all.
package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/rouse-dev/rouse/functions/cli"
)

func greet(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--plain" {
		port := os.Getenv("PORT")
		if port == "" {
			port = "8080"
		}
		if err := http.ListenAndServe(":"+port, http.HandlerFunc(greet)); err != nil {
			fmt.Fprintln(os.Stderr, "greeter:", err)
			os.Exit(1)
		}
		return
	}
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
