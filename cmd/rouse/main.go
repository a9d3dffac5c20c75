// Command rouse serves language models from zero on one machine, and talks to a
// server that does.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rouse-dev/rouse/cmd/internal/cli"
)

func main() {
	err := cli.Execute(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	var exit *cli.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		os.Exit(exit.Code)
	default:
		fmt.Fprintln(os.Stderr, "rouse:", err)
		os.Exit(cli.Status(err))
	}
}
