package verb

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/config/apikey"
	"github.com/rouse-dev/rouse/internal/flagset"
)

// KeysFile is the store of clients' keys.
type KeysFile interface {
	String() string
	// Read returns its content, nil if it does not exist yet.
	Read(ctx context.Context) ([]byte, error)
	// Change atomically replaces its content. Concurrent changes wait or are retried.
	Change(ctx context.Context, change func(raw []byte) ([]byte, error)) error
}

// makeKey declares a key. secret is "" for clients without one. first: the file is new.
func makeKey(ctx context.Context, file KeysFile, k apikey.Key) (secret string, first bool, err error) {
	if k.Name != apikey.Anonymous {
		secret, k.Hash = apikey.New()
	}
	err = file.Change(ctx, func(raw []byte) ([]byte, error) {
		first = len(raw) == 0
		return conflicting(apikey.Add(raw, k))
	})
	return secret, first, withName(file, err)
}

func withName(file KeysFile, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return err
}

// listOf returns the keys without their hashes.
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

func editKey(ctx context.Context, file KeysFile, name string, edit func(raw []byte) ([]byte, error)) error {
	return withName(file, file.Change(ctx, func(raw []byte) ([]byte, error) {
		if len(raw) == 0 {
			return nil, fmt.Errorf("%w: %s", apikey.ErrUnknown, name)
		}
		return conflicting(edit(raw))
	}))
}

// conflict is why the keys that are there do not allow a change. Other errors are about the store.
type conflict struct{ error }

func (c conflict) Unwrap() error { return c.error }

func conflicting(raw []byte, err error) ([]byte, error) {
	if err != nil {
		err = conflict{err}
	}
	return raw, err
}

func revokeIn(ctx context.Context, file KeysFile, name string) error {
	return editKey(ctx, file, name, func(raw []byte) ([]byte, error) { return apikey.Remove(raw, name) })
}

func (p Program) knowsKey(err error) error {
	if errors.Is(err, apikey.ErrUnknown) {
		return fmt.Errorf("%w (%s keys list)", err, p.Name)
	}
	return err
}

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
		if err := api.Decode(io.LimitReader(r.Body, maxKey), &k); err != nil {
			return nil, api.BadRequest("", "the body is no key, such as {\"name\":\"alice\"}: %v", err)
		}
		if k.Hash != "" {
			return nil, api.BadRequest("hash", "the secret is made here: leave the hash out")
		}
		var secret string
		secret, _, err = makeKey(r.Context(), file, k)
		answer = map[string]string{"name": k.Name, "key": secret}
	case http.MethodPatch:
		var patch map[string]json.RawMessage
		name := r.FormValue("name")
		if err := api.Decode(io.LimitReader(r.Body, maxKey), &patch); err != nil {
			return nil, api.BadRequest("", "the body is no change of a key, such as {\"requestsPerMinute\":60}: %v", err)
		}
		var bad error
		err = editKey(r.Context(), file, name, func(raw []byte) ([]byte, error) {
			return apikey.Set(raw, name, func(k *apikey.Key) error {
				bad = mergeKey(patch, k)
				return bad
			})
		})
		if bad != nil {
			return nil, api.BadRequest("", "%v", bad)
		}
		answer = map[string]string{"name": name}
	case http.MethodDelete:
		err = revokeIn(r.Context(), file, r.FormValue("name"))
	default:
		return nil, api.Errorf(http.StatusMethodNotAllowed, api.CodeUnknownPath, "keys are for GET, POST, PATCH and DELETE")
	}
	switch _, conflicts := errors.AsType[conflict](err); {
	case errors.Is(err, apikey.ErrUnknown):
		err = api.Errorf(http.StatusNotFound, "", "%v", err)
	case conflicts:
		err = api.Errorf(http.StatusConflict, "", "%v", err)
	}
	return answer, err
}

// mergeKey applies a JSON merge patch (RFC 7396).
func mergeKey(patch map[string]json.RawMessage, k *apikey.Key) error {
	if patch == nil {
		return errors.New("the patch is null: name the fields to change")
	}
	fields := reflect.VisibleFields(reflect.TypeFor[apikey.Key]())
	for name := range patch { // names in another case would be fields of their own
		if !slices.ContainsFunc(fields, func(f reflect.StructField) bool {
			known, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return known == name
		}) {
			return fmt.Errorf("a key has no field %.80q", name)
		}
	}
	var whole map[string]json.RawMessage
	raw, _ := json.Marshal(k) // it comes from JSON
	_ = json.Unmarshal(raw, &whole)
	maps.Copy(whole, patch)
	raw, _ = json.Marshal(whole)
	var merged apikey.Key
	err := api.Decode(bytes.NewReader(raw), &merged)
	if err == nil && (merged.Name != k.Name || merged.Hash != k.Hash) {
		err = errors.New("the name and the hash of a key stay: make another key")
	}
	*k = merged
	return err
}

// Keys manages keys. open finds the file by the flags that flags adds; hint says how to tell a server of a new file;
// empty: it knows.
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
	for _, c := range []*cobra.Command{p.createKey(open, hint), p.listKeys(open), p.setKey(open), p.revokeKey(open)} {
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
			k.Name, k.Expires = args[0], expiry(lifetime)
			key, first, err := makeKey(cmd.Context(), file, k)
			if err != nil {
				return err
			}
			if key == "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "Clients that show no key are let in, until: %s keys revoke %s\n", p.Name, k.Name)
			} else {
				fmt.Fprintln(cmd.OutOrStdout(), key)
				fmt.Fprintf(cmd.ErrOrStderr(), "This is the key of %s: it is not shown again. Clients send it as a bearer token.\n", k.Name)
				if f, ok := cmd.OutOrStdout().(*os.File); ok {
					if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Mode()&0o077 != 0 {
						fmt.Fprintln(cmd.ErrOrStderr(), "Other users of this machine can read the file that it was written to: chmod 600 it.")
					}
				}
			}
			if text := hint(file); first && text != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), text)
			}
			return nil
		},
	}
	keyFlags(cmd.Flags(), &k, &lifetime)
	return cmd
}

func keyFlags(f *pflag.FlagSet, k *apikey.Key, lifetime *time.Duration) {
	flagset.Add(f, k)
	flagset.DurationVarP(f, lifetime, "expires-in", "", 0, "when it ends, from now, such as 12h, 30d or 4w; 0: never")
}

// expiry of a lifetime of 0 is none.
func expiry(lifetime time.Duration) time.Time {
	if lifetime == 0 {
		return time.Time{}
	}
	return time.Now().Add(lifetime).UTC().Truncate(time.Second)
}

func setFlags(given *pflag.FlagSet, to *apikey.Key, end time.Time) error {
	of := pflag.NewFlagSet("", pflag.ContinueOnError)
	flagset.Add(of, to)
	err := errors.New("say what to change, such as --requests-per-minute 60")
	given.Visit(func(f *pflag.Flag) {
		list, several := f.Value.(pflag.SliceValue)
		switch field := of.Lookup(f.Name); {
		case f.Name == "expires-in":
			to.Expires, err = end, nil
		case field == nil: // another one, such as --file
		case several:
			values := slices.DeleteFunc(list.GetSlice(), func(v string) bool { return v == "" })
			err = field.Value.(pflag.SliceValue).Replace(values)
		default:
			err = field.Value.Set(f.Value.String())
		}
	})
	return err
}

func (p Program) setKey(open func(cmd *cobra.Command) (KeysFile, error)) *cobra.Command {
	var k apikey.Key
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change what a key may use",
		Long: `Change what a key may use. What no flag names stays; --model '' allows all models again.
What the key has used of its limits counts on.`,
		Example: "  " + p.Name + ` keys set alice --requests-per-minute 120
  ` + p.Name + ` keys set ci --model 'qwen*' --expires-in 30d`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := open(cmd)
			if err != nil {
				return err
			}
			err = editKey(cmd.Context(), file, args[0], func(raw []byte) ([]byte, error) {
				return apikey.Set(raw, args[0], func(to *apikey.Key) error { return setFlags(cmd.Flags(), to, expiry(lifetime)) })
			})
			if err == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "The key %s is changed.\n", args[0])
			}
			return p.knowsKey(err)
		},
	}
	keyFlags(cmd.Flags(), &k, &lifetime)
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
				rows := render.Rows{{"NAME", "TENANT", "MODELS", "REQUESTS/MIN", "TOKENS/MIN", "AT ONCE", "EXPIRES", "BUDGETS"}}
				columns := len(rows[0]) - 1 // without budgets, unless a key has one
				for _, k := range list {
					if k.Budgets() != [2][2]int64{} {
						columns = len(rows[0])
					}
					rows.Add(k.Name, cmp.Or(k.Tenant, "-"), cmp.Or(strings.Join(k.Models, ","), "all"), limit(k.RequestsPerMinute), limit(k.TokensPerMinute), limit(int64(k.Concurrent)), expires(k.Expires), budgets(k.Rights))
				}
				for i := range rows {
					rows[i] = rows[i][:columns]
				}
				return render.Table(w, rows)
			})
		},
	}
	render.Flag(cmd)
	return cmd
}

func budgets(r apikey.Rights) string {
	var all []string
	for k, limits := range r.Budgets() {
		for n, limit := range limits {
			if limit > 0 {
				all = append(all, fmt.Sprint(limit, [...]string{" tokens", " GPU-s"}[n], [...]string{"/day", "/month"}[k]))
			}
		}
	}
	return cmp.Or(strings.Join(all, ", "), "-")
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
			if err := revokeIn(cmd.Context(), file, args[0]); err != nil {
				return p.knowsKey(err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "The key %s is revoked.\n", args[0])
			return nil
		},
	}
}
