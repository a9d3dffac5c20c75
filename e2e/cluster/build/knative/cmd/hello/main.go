// Command hello is a stock function: it says which pod it is, and which devices it was given.
package main

import (
	"fmt"
	"net/http"
	"os"
)

func main() {
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	host, err := os.Hostname()
	if err != nil {
		host = "nobody"
	}
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "hello from %s of %s, devices %q\n", host, os.Getenv("K_REVISION"), os.Getenv("NVIDIA_VISIBLE_DEVICES"))
	})
	fmt.Fprintln(os.Stderr, http.ListenAndServe(":"+port, nil))
	os.Exit(1)
}
