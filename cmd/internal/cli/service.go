package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/cmd/internal/local"
	"github.com/rouse-dev/rouse/cmd/internal/render"
	"github.com/rouse-dev/rouse/internal/flagset"
)

func serviceCommand() *cobra.Command {
	m := serviceManager{Kind: "auto"}
	cmd := &cobra.Command{
		Use:   "service",
		Short: "Have rouse up run as a service of this machine",
		Long: `Have rouse up run as a service: a unit of systemd, of your own or with --system of the system, or a launchd agent. It
serves what is kept (rouse apply --save), and applies what changes there.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flagset.Add(cmd.PersistentFlags(), &m)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if meant := render.MeantFlag(cmd, err); meant != err {
			return meant
		}
		return fmt.Errorf("%w: flags of rouse up follow --, as in `rouse service install -- --memory 16Gi`", err)
	})
	with := func(do func(serviceManager, context.Context) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, _ []string) error {
			m, err := managerOf(cmd, m)
			if err != nil {
				return err
			}
			return do(m, cmd.Context())
		}
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "install [-- UP-FLAG …]",
		Short: "Write the service's file, and start it now and at each boot or login",
		Long: `Write the service's file, and start it now and at each boot (with systemd for one user: at the first login, unless
loginctl enable-linger says otherwise). What follows -- are flags of rouse up. Again, it changes the file; a service that runs
is restarted by it only where it says something else, and lets requests finish first.`,
		Example: `  rouse service install
  rouse service install -- --ollama --models-dir ~/models --memory 16Gi
  sudo rouse service install --system --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error { return install(cmd, m, args) },
	}, &cobra.Command{
		Use: "uninstall", Short: "Stop the service, which lets requests finish, and remove its file", Args: cobra.NoArgs,
		Long: `Stop the service and remove its file. Requests that run may finish, within the service's --drain (30 s). What was kept,
fetched and learned stays.`,
		RunE: with(serviceManager.Uninstall),
	}, &cobra.Command{
		Use: "status", Short: "Show how the service is", Args: cobra.NoArgs,
		RunE: with(serviceManager.Status),
	})
	return cmd
}

func managerOf(cmd *cobra.Command, m serviceManager) (serviceManager, error) {
	program := map[string]string{systemd: "systemctl", launchd: "launchctl"}
	switch {
	case m.Kind == "auto" && runtime.GOOS == "darwin":
		m.Kind = launchd
	case m.Kind == "auto":
		m.Kind = systemd
	case program[m.Kind] == "":
		return m, fmt.Errorf("--manager %q: want auto, systemd or launchd", m.Kind)
	}
	if m.Kind == launchd && m.System {
		return m, errors.New("--system is for systemd: a launchd agent is a user's own")
	}
	if _, err := exec.LookPath(program[m.Kind]); err != nil && !m.DryRun {
		return m, fmt.Errorf("there is no %s here: start `rouse up` by what starts programs on this system; --dry-run prints what the service would be", m.Kind)
	}
	m.Out = cmd.OutOrStdout()
	return m, nil
}

func install(cmd *cobra.Command, m serviceManager, args []string) error {
	m, err := managerOf(cmd, m)
	if err != nil {
		return err
	}
	up := upCommand()
	if err := up.ParseFlags(args); err != nil {
		return fmt.Errorf("after --: %w", err)
	}
	if rest := up.Flags().Args(); len(rest) > 0 {
		return fmt.Errorf("after -- want flags of rouse up, and found %q", rest)
	}
	o := serviceOptions{Args: args, System: m.System}
	if o.Drain, err = up.Flags().GetDuration("drain"); err != nil {
		return err
	}
	if o.Program, err = installed(); err != nil {
		return err
	}
	if len(args) > 0 {
		if o.Dir, err = os.Getwd(); err != nil {
			return fmt.Errorf("find the folder that paths count from: %w", err)
		}
	}
	listen, _ := up.Flags().GetString("listen")
	return m.Install(cmd.Context(), o, listens(cmd.Context(), listen))
}

func installed() (string, error) {
	path, err := os.Executable()
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", fmt.Errorf("find the program: %w", err)
	}
	if strings.Contains(path, "go-build") {
		return "", fmt.Errorf("the program is %s, which will be gone: install it first", path)
	}
	return path, nil
}

// listens describes what already takes requests at an address, or "".
func listens(ctx context.Context, listen string) string {
	address, err := api.ListenAddress(listen)
	if err != nil {
		return ""
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return ""
	}
	_ = conn.Close()
	if endpoint, err := findServer(ctx, local.BaseDir()); err == nil {
		if info, err := newClient(endpoint, "").info(ctx); err == nil && strings.HasSuffix(info.URL, address) {
			return fmt.Sprintf("a server runs at %s already, as process %d", info.URL, info.PID)
		}
	}
	return "something listens at " + address + " already"
}
