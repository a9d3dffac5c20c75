package verb

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/admin"
)

// Record fetches the autoscaler's flight record.
func (p Program) Record() *cobra.Command {
	return p.Command(&cobra.Command{
		Use:   "record FILE",
		Short: "Fetch the autoscaler's record, for rouse replay",
		Long: `Fetch the record of all that the autoscaler has taken in and decided, as far back as it
goes, and write it to FILE, or with - to standard output. rouse replay goes through it on
any machine. There are no prompts, keys, commands and environments in it; there are the
names of functions, when each was asked for, and why what was decided.`,
		Example: fmt.Sprintf("  %[1]s record today.flight\n  %[1]s record - | ssh me@there 'cat > today.flight'", p.Name),
		Args:    cobra.ExactArgs(1),
	}, "", func(cmd *cobra.Command, s *Server, args []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt) // no part of a record is left
		defer stop()
		resp, err := s.Open(ctx, http.MethodGet, admin.PathRecord, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if args[0] == "-" {
			_, err := io.Copy(cmd.OutOrStdout(), resp.Body)
			return err
		}
		n, err := keep(args[0], resp.Body)
		if err != nil {
			return fmt.Errorf("fetch the record: %w", err)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s; look into it with rouse replay %s\n", args[0], api.Bytes(n), args[0])
		return err
	})
}

// Create creates a file that only this user can read. One that exists is an error.
func Create(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%w: remove it, or name another", err)
	}
	return file, err
}

// keep writes a new file, and removes an incomplete one.
func keep(path string, from io.Reader) (n int64, err error) {
	file, err := Create(path)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(file, from)
	if err = errors.Join(err, file.Close()); err == nil && n == 0 {
		err = errors.New("nothing is recorded yet")
	}
	if err != nil {
		return n, errors.Join(err, os.Remove(path))
	}
	return n, nil
}
