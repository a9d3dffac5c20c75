// Command kn-rouse is kn's plugin for Rouse: `kn rouse`.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/rouse-dev/rouse/cmd/internal/kn"
	"github.com/rouse-dev/rouse/cmd/internal/render"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := kn.Execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(render.Harmless(os.Stderr), "kn rouse:", err) // a server may have written it
		os.Exit(1)
	}
}
