// Command rouse serves language models from zero on one machine, and talks to such a server.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rouse-dev/rouse/cmd/internal/cli"
	"github.com/rouse-dev/rouse/cmd/internal/render"
)

func main() {
	err := cli.Execute(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	var exit *cli.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		os.Exit(exit.Code)
	default:
		fmt.Fprintln(render.Harmless(os.Stderr), "rouse:", err) // a server may have written it
		os.Exit(cli.Status(err))
	}
}
