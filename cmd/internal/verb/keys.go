package verb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
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

// makeKey declares a key in file, and returns its secret, "" for clients without a key. first means that the file is new.
func makeKey(ctx context.Context, file KeysFile, k apikey.Key) (secret string, first bool, err error) {
	if k.Name != apikey.Anonymous {
		secret, k.Hash = apikey.New()
	}
	err = file.Change(ctx, func(raw []byte) ([]byte, error) {
		first = len(raw) == 0
		return apikey.Add(raw, k)
	})
	return secret, first, withName(file, err)
}

// withName adds the file's name to an error.
func withName(file KeysFile, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return err
}

// listOf returns the keys in file, without their hashes.
func listOf(ctx context.Context, file KeysFile) ([]apikey.Key, error) {
	raw, err := file.Read(ctx)
	if err != nil || len(raw) == 0 {
		return []apikey.Key{}, err
	}
	declared, err := apikey.Parse(raw)
	if err != nil {
		return nil, withName(file, err)
	}
	list := append([]apikey.Key{}, declared.Keys...)
	for i := range list {
		if list[i].Name != apikey.Anonymous {
			list[i].Tenant, list[i].Hash = list[i].Owner(), ""
		}
	}
	return list, nil
}

func revokeIn(ctx context.Context, file KeysFile, name string) error {
	return withName(file, file.Change(ctx, func(raw []byte) ([]byte, error) {
		if len(raw) == 0 {
			return nil, fmt.Errorf("%w: %s", apikey.ErrUnknown, name)
		}
		return apikey.Remove(raw, name)
	}))
}

// maxKey bounds the body that declares a key.
const maxKey = 64 << 10

// ServeKeys is [admin.PathKeys] over file. Its caller authorizes requests.
func ServeKeys(file KeysFile) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		answer, err := changeKeys(file, r)
		api.Answer(w, answer, err)
	})
}

func changeKeys(file KeysFile, r *http.Request) (answer any, err error) {
	switch r.Method {
	case http.MethodGet:
		answer, err = listOf(r.Context(), file)
	case http.MethodPost:
		var k apikey.Key
		dec := json.NewDecoder(io.LimitReader(r.Body, maxKey))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&k); err != nil {
			return nil, api.BadRequest("", "the body is no key, such as {\"name\":\"alice\"}: %v", err)
		}
		if k.Hash != "" {
			return nil, api.BadRequest("hash", "the secret is made here: leave the hash out")
		}
		var secret string
		secret, _, err = makeKey(r.Context(), file, k)
		answer = map[string]string{"name": k.Name, "key": secret}
	case http.MethodDelete:
		err = revokeIn(r.Context(), file, r.FormValue("name"))
	default:
		return nil, api.Errorf(http.StatusMethodNotAllowed, api.CodeUnknownPath, "keys are for GET, POST and DELETE")
	}
	switch {
	case errors.Is(err, apikey.ErrUnknown):
		err = api.Errorf(http.StatusNotFound, "", "%v", err)
	case err != nil:
		err = api.Errorf(http.StatusConflict, "", "%v", err)
	}
	return answer, err
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
			key, first, err := makeKey(cmd.Context(), file, k)
			if err != nil {
				return err
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
			list, err := listOf(cmd.Context(), file)
			if err != nil {
				return err
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
			err = revokeIn(cmd.Context(), file, args[0])
			if errors.Is(err, apikey.ErrUnknown) {
				return fmt.Errorf("%w (%s keys list)", err, p.Name)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "The key %s is revoked.\n", args[0])
			return nil
		},
	}
}
