package verb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/config/apikey"
	"github.com/rouse-dev/rouse/internal/flagset"
)

// KeysFile is the store of clients' keys: a file, or a Secret.
type KeysFile interface {
	// String returns its name for display.
	String() string
	// Read returns its content, nil if it does not exist yet.
	Read(ctx context.Context) ([]byte, error)
	// Change atomically replaces its content by change's result.
	Change(ctx context.Context, change func(raw []byte) ([]byte, error)) error
}

// Keys is the command that manages keys. open finds the file by the flags that flags adds to a command; hint says how
// to tell a server of a new file; empty: it knows.
func (p Program) Keys(open func(cmd *cobra.Command) (KeysFile, error), flags func(cmd *cobra.Command), hint func(KeysFile) string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Manage clients' keys and their limits",
		Long: `Manage clients' keys and their limits.

A key is shown once, when it is made; only its SHA-256 sum is kept. A server that runs
learns of changes within seconds. A key that is revoked ends the requests that have it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, c := range []*cobra.Command{p.createKey(open, hint), p.listKeys(open), p.revokeKey(open)} {
		flags(c)
		cmd.AddCommand(c)
	}
	return cmd
}

func (p Program) createKey(open func(cmd *cobra.Command) (KeysFile, error), hint func(KeysFile) string) *cobra.Command {
	var k apikey.Key
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a key, and print it",
		Long: `Make a key, and print it. The name "anonymous" makes none: it lets clients in that
show no key, with these models and limits for all of them together.`,
		Example: "  " + p.Name + ` keys create alice
  ` + p.Name + ` keys create ci --tenant build --model 'qwen*' --requests-per-minute 60 --expires-in 720h`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := open(cmd)
			if err != nil {
				return err
			}
			k.Name = args[0]
			if lifetime < 0 {
				return fmt.Errorf("--expires-in %s: want a time from now", lifetime)
			}
			if lifetime > 0 {
				k.Expires = time.Now().Add(lifetime).UTC().Truncate(time.Second)
			}
			var key string
			if k.Name != apikey.Anonymous {
				key, k.Hash = apikey.New()
			}
			first := false
			err = file.Change(cmd.Context(), func(raw []byte) ([]byte, error) {
				first = len(raw) == 0
				return apikey.Add(raw, k)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if key == "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "Clients that show no key are let in, until: %s keys revoke %s\n", p.Name, k.Name)
			} else {
				fmt.Fprintln(cmd.OutOrStdout(), key)
				fmt.Fprintf(cmd.ErrOrStderr(), "This is the key of %s: it is not shown again. Clients send it as a bearer token.\n", k.Name)
			}
			if text := hint(file); first && text != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), text)
			}
			return nil
		},
	}
	f := cmd.Flags()
	flagset.Add(f, &k)
	f.Int64Var(&k.RequestsPerMinute, "requests-per-minute", 0, "how many requests may begin in a minute; 0: no limit")
	f.Int64Var(&k.TokensPerMinute, "tokens-per-minute", 0, "how many tokens, of input and output together, may be used in a minute; 0: no limit")
	f.DurationVar(&lifetime, "expires-in", 0, "when it ends, from now; 0: never")
	return cmd
}

func (p Program) listKeys(open func(cmd *cobra.Command) (KeysFile, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List keys with what they may use",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := open(cmd)
			if err != nil {
				return err
			}
			raw, err := file.Read(cmd.Context())
			if err != nil {
				return err
			}
			declared := &apikey.File{}
			if len(raw) > 0 {
				if declared, err = apikey.Parse(raw); err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
			}
			list := declared.Keys
			for i := range list {
				if list[i].Name != apikey.Anonymous {
					list[i].Tenant, list[i].Hash = list[i].Owner(), ""
				}
			}
			return render.Print(cmd, list, func(w io.Writer, list []apikey.Key) error {
				if len(list) == 0 {
					_, err := fmt.Fprintf(w, "No keys in %s: make one with %s keys create NAME\n", file, p.Name)
					return err
				}
				rows := render.Rows{{"NAME", "TENANT", "MODELS", "REQUESTS/MIN", "TOKENS/MIN", "AT ONCE", "EXPIRES"}}
				for _, k := range list {
					rows.Add(k.Name, cmp.Or(k.Tenant, "-"), cmp.Or(strings.Join(k.Models, ","), "all"), limit(k.RequestsPerMinute), limit(k.TokensPerMinute), limit(int64(k.Concurrent)), expires(k.Expires))
				}
				return render.Table(w, rows)
			})
		},
	}
	render.Flag(cmd)
	return cmd
}

func limit(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func expires(at time.Time) string {
	switch {
	case at.IsZero():
		return "never"
	case !time.Now().Before(at):
		return "expired"
	}
	return at.Format(time.DateOnly)
}

func (p Program) revokeKey(open func(cmd *cobra.Command) (KeysFile, error)) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke NAME",
		Aliases: []string{"rm", "delete"},
		Short:   "Take a key away, and end its requests",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := open(cmd)
			if err != nil {
				return err
			}
			err = file.Change(cmd.Context(), func(raw []byte) ([]byte, error) {
				if len(raw) == 0 {
					return nil, fmt.Errorf("%w: %s", apikey.ErrUnknown, args[0])
				}
				return apikey.Remove(raw, args[0])
			})
			if errors.Is(err, apikey.ErrUnknown) {
				return fmt.Errorf("%s: %w (%s keys list)", file, err, p.Name)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "The key %s is revoked.\n", args[0])
			return nil
		},
	}
}
