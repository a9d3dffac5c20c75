// Command function runs one instance of a function: see package functions/cli.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/rouse-dev/rouse/functions/cli"
	"github.com/rouse-dev/rouse/internal/inbound"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "function:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	inbound.LimitMemory()
	cmd := cli.Command()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(os.Stderr)
	return cmd.ExecuteContext(ctx)
}
