package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rouse-dev/rouse/internal/disk"
)

// serviceManager replaces a file that was not written here only by Force, and restarts nothing if the file is unchanged.
type serviceManager struct {
	Kind   string `flag:"manager" help:"systemd, launchd, or auto: that of this system"`
	System bool   `flag:"system" help:"a unit of the system, with a user of its own; its functions are in /etc/rouse"`
	Out    io.Writer
	DryRun bool `flag:"dry-run" help:"print what would be written and run, and do nothing"`
	Force  bool `flag:"force" help:"replace or remove a file that rouse has not written"`
}

const (
	systemd = "systemd"
	launchd = "launchd"
)

const unitName = "rouse.service"

func (m serviceManager) Path() (string, error) {
	if m.System && m.Kind == systemd {
		return filepath.Join("/etc/systemd/system", unitName), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the folder of services: %w", err)
	}
	if m.Kind == launchd {
		return filepath.Join(home, "Library", "LaunchAgents", launchdLabel+".plist"), nil
	}
	config := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) {
		config = filepath.Join(home, ".config")
	}
	return filepath.Join(config, "systemd", "user", unitName), nil
}

func (m serviceManager) Text(o serviceOptions) (string, error) {
	if err := o.Validate(); err != nil {
		return "", err
	}
	if m.Kind == launchd {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the folder of logs: %w", err)
		}
		return launchdPlist(o, filepath.Join(home, "Library", "Logs")), nil
	}
	return systemdUnit(o), nil
}

// Install writes the service's file and has it run. other describes a server that runs at the address.
func (m serviceManager) Install(ctx context.Context, o serviceOptions, other string) error {
	path, err := m.Path()
	if err != nil {
		return err
	}
	text, err := m.Text(o)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(path)
	there := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for a service: %w", err)
	}
	if there && !strings.Contains(string(old), unitMark) && !m.Force {
		return fmt.Errorf("%s was not written by rouse: --force replaces it", path)
	}
	runs := there && m.Active(ctx)
	if other != "" && !runs {
		return fmt.Errorf("%s: stop it first, or give the service another address (rouse service install -- --listen 127.0.0.1:PORT)", other)
	}
	if runs && string(old) == text {
		m.sayf("%s is as it should be, and runs\n", path)
		return nil
	}
	if m.DryRun {
		m.sayf("# would write %s:\n%s", path, text)
	} else if err := writeUnit(path, text); err != nil {
		return fmt.Errorf("install the service: %w", err)
	} else {
		m.sayf("wrote %s\n", path)
	}
	for _, command := range m.start(path, runs) {
		if err := m.run(ctx, command); err != nil {
			return err
		}
	}
	return nil
}

// Uninstall lets requests finish. Without a service the error wraps [fs.ErrNotExist].
func (m serviceManager) Uninstall(ctx context.Context) error {
	path, err := m.Path()
	if err != nil {
		return err
	}
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no service is installed: %w", err)
	}
	if err != nil {
		return fmt.Errorf("look for a service: %w", err)
	}
	if !strings.Contains(string(old), unitMark) && !m.Force {
		return fmt.Errorf("%s was not written by rouse: --force removes it", path)
	}
	if err := m.run(ctx, m.command("bootout", "disable", "--now")); err != nil && !m.Force {
		return err
	}
	if m.DryRun {
		m.sayf("would remove %s\n", path)
	} else if err := os.Remove(path); err != nil {
		return fmt.Errorf("uninstall the service: %w", err)
	} else {
		m.sayf("removed %s\n", path)
	}
	if m.Kind == systemd {
		return m.run(ctx, m.systemctl("daemon-reload"))
	}
	return nil
}

func (m serviceManager) Status(ctx context.Context) error {
	path, err := m.Path()
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("no service is installed: %w", err)
	}
	command := m.command("print", "status", "--no-pager")
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = m.Out, m.Out
	var ended *exec.ExitError
	if err := cmd.Run(); err != nil && (!errors.As(err, &ended) || ended.ExitCode() == 1) { // the output is the answer, also if it does not run (3)
		return fmt.Errorf("ask %s: %w", command[0], err)
	}
	return nil
}

func (m serviceManager) Active(ctx context.Context) bool {
	command := m.command("print", "is-active", "--quiet")
	return exec.CommandContext(ctx, command[0], command[1:]...).Run() == nil
}

func (m serviceManager) start(path string, runs bool) [][]string {
	if m.Kind == launchd {
		start := [][]string{{"launchctl", "bootstrap", launchdDomain(), path}}
		if runs {
			start = append([][]string{m.command("bootout")}, start...)
		}
		return start
	}
	start := [][]string{m.systemctl("daemon-reload"), m.systemctl("enable", "--now", unitName)}
	if runs {
		start[1] = m.systemctl("restart", unitName)
	}
	return start
}

func (m serviceManager) command(launchctl string, systemctl ...string) []string {
	if m.Kind == launchd {
		return []string{"launchctl", launchctl, launchdDomain() + "/" + launchdLabel}
	}
	return m.systemctl(append(systemctl, unitName)...)
}

func (m serviceManager) systemctl(args ...string) []string {
	if m.System {
		return append([]string{"systemctl"}, args...)
	}
	return append([]string{"systemctl", "--user"}, args...)
}

func launchdDomain() string { return fmt.Sprintf("gui/%d", os.Getuid()) }

func (m serviceManager) run(ctx context.Context, command []string) error {
	line := strings.Join(command, " ")
	if m.DryRun {
		m.sayf("would run %s\n", line)
		return nil
	}
	m.sayf("%s\n", line)
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s: %w: %s", line, err, bytes.TrimSpace(out))
	if bytes.Contains(out, []byte("connect to bus")) {
		err = fmt.Errorf("%w: no systemd runs for this user here: log in as the user (not by su or sudo), or give --system", err)
	}
	return err
}

func (m serviceManager) sayf(format string, args ...any) { fmt.Fprintf(m.Out, format, args...) }

func writeUnit(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return disk.WriteFile(path, []byte(text), 0o644)
}
