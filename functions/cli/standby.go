package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// StandbyArgs are the arguments of a process that starts ahead of its instance.
// It needs no more than the standard input on which its [Order] comes; the end
// of that input without one ends it.
func StandbyArgs() []string { return []string{"--standby"} }

// Order makes an instance of a process that stands by.
type Order struct {
	// Args are those that a process without --standby would be started with.
	Args []string `json:"args"`
	// Env is the whole environment, as "KEY=VALUE". It may hold secrets.
	Env []string `json:"env"`
}

// standby waits for an order and carries it out.
func standby(cmd *cobra.Command, wrap func(http.Handler) http.Handler) error {
	var order Order
	err := json.NewDecoder(cmd.InOrStdin()).Decode(&order)
	if errors.Is(err, io.EOF) {
		return nil // nobody needs us
	}
	if err != nil {
		return fmt.Errorf("--standby: read the order from the standard input: %w", err)
	}
	os.Clearenv()
	for _, kv := range order.Env {
		name, value, _ := strings.Cut(kv, "=")
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("--standby: set the environment variable %q: %w", name, err)
		}
	}
	next := command(wrap)
	next.SetArgs(order.Args)
	next.SetIn(cmd.InOrStdin())
	next.SetOut(cmd.OutOrStdout())
	next.SetErr(cmd.ErrOrStderr())
	return next.ExecuteContext(cmd.Context())
}
