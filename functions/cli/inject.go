package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// installCommand runs in an init container of a container whose image lacks the function.
func installCommand() *cobra.Command {
	return &cobra.Command{
		Use: "install FOLDER", Short: "Copy this program into a folder, for a container whose image does not have it", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			suspend := filepath.Join(filepath.Dir(self), "rouse-suspend")
			if err := install(suspend, filepath.Join(args[0], "rouse-suspend")); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return install(self, filepath.Join(args[0], "rouse-function"))
		},
	}
}

func install(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(to), ".rouse-function-")
	if err != nil {
		return fmt.Errorf("copy the program: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("copy the program: %w", errors.Join(err, os.Remove(out.Name())))
		}
	}()
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Chmod(0o755), out.Close()); err != nil { // for any user of the other container
		return err
	}
	return os.Rename(out.Name(), to)
}

// probeCommand runs an exec probe of a container whose server sleeps with its function. While the server is not up, the probe passes.
func probeCommand() *cobra.Command {
	var port int
	cmd := &cobra.Command{
		Use: "probe --port PORT -- COMMAND [ARGUMENT…]", Short: "Run a container's own probe, where its server is up", Hidden: true, Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !up(cmd.Context(), port) {
				return nil
			}
			probe := exec.CommandContext(cmd.Context(), args[0], args[1:]...) // the container's own manifest says it
			probe.Stdout, probe.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return probe.Run()
		},
	}
	cmd.Flags().IntVar(&port, "port", 8080, "where the function listens")
	return cmd
}

func up(ctx context.Context, port int) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+strconv.Itoa(port)+"/rouse/v1/up", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
