package service

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

// Manager is the service manager to use, and how.
type Manager struct {
	// Kind is "systemd" or "launchd".
	Kind string
	// System is as in [Options].
	System bool
	// Out gets each step, a line each.
	Out io.Writer
	// DryRun does nothing, and prints the steps.
	DryRun bool
	// Force replaces files that were not written here.
	Force bool
}

// Kinds of managers.
const (
	Systemd = "systemd"
	Launchd = "launchd"
)

// unitName is the service's name in systemd.
const unitName = "rouse.service"

// Path returns the service's file.
func (m Manager) Path() (string, error) {
	if m.System && m.Kind == Systemd {
		return filepath.Join("/etc/systemd/system", unitName), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the folder of services: %w", err)
	}
	if m.Kind == Launchd {
		return filepath.Join(home, "Library", "LaunchAgents", Label+".plist"), nil
	}
	config := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) {
		config = filepath.Join(home, ".config")
	}
	return filepath.Join(config, "systemd", "user", unitName), nil
}

// Text returns the content of a service's file.
func (m Manager) Text(o Options) (string, error) {
	if err := o.Validate(); err != nil {
		return "", err
	}
	if m.Kind == Launchd {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the folder of logs: %w", err)
		}
		return Plist(o, filepath.Join(home, "Library", "Logs")), nil
	}
	return Unit(o), nil
}

// Install writes the service's file and has it run. other describes a running server on the same address, for display; empty:
// none.
func (m Manager) Install(ctx context.Context, o Options, other string) error {
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
	if there && !strings.Contains(string(old), mark) && !m.Force {
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
	} else if err := write(path, text); err != nil {
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

// Uninstall stops the service and removes its file. If there is none it returns an error that wraps [fs.ErrNotExist].
func (m Manager) Uninstall(ctx context.Context) error {
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
	if !strings.Contains(string(old), mark) && !m.Force {
		return fmt.Errorf("%s was not written by rouse: --force removes it", path)
	}
	stop := m.systemctl("disable", "--now", unitName)
	if m.Kind == Launchd {
		stop = []string{"launchctl", "bootout", domain() + "/" + Label}
	}
	if err := m.run(ctx, stop); err != nil && !m.Force {
		return err
	}
	if m.DryRun {
		m.sayf("would remove %s\n", path)
	} else if err := os.Remove(path); err != nil {
		return fmt.Errorf("uninstall the service: %w", err)
	} else {
		m.sayf("removed %s\n", path)
	}
	if m.Kind == Systemd {
		return m.run(ctx, m.systemctl("daemon-reload"))
	}
	return nil
}

// Status has the manager print the service's state.
func (m Manager) Status(ctx context.Context) error {
	path, err := m.Path()
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("no service is installed: %w", err)
	}
	command := m.systemctl("status", "--no-pager", unitName)
	if m.Kind == Launchd {
		command = []string{"launchctl", "print", domain() + "/" + Label}
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = m.Out, m.Out
	var ended *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &ended) { // the output is the answer, also if the service does not run
		return fmt.Errorf("ask %s: %w", command[0], err)
	}
	return nil
}

// Active reports whether the manager runs the service.
func (m Manager) Active(ctx context.Context) bool {
	command := m.systemctl("is-active", "--quiet", unitName)
	if m.Kind == Launchd {
		command = []string{"launchctl", "print", domain() + "/" + Label}
	}
	return exec.CommandContext(ctx, command[0], command[1:]...).Run() == nil
}

// start returns the commands that run a service by its file.
func (m Manager) start(path string, runs bool) [][]string {
	if m.Kind == Launchd {
		start := [][]string{{"launchctl", "bootstrap", domain(), path}}
		if runs {
			start = append([][]string{{"launchctl", "bootout", domain() + "/" + Label}}, start...)
		}
		return start
	}
	start := [][]string{m.systemctl("daemon-reload"), m.systemctl("enable", "--now", unitName)}
	if runs {
		start[1] = m.systemctl("restart", unitName)
	}
	return start
}

func (m Manager) systemctl(args ...string) []string {
	if m.System {
		return append([]string{"systemctl"}, args...)
	}
	return append([]string{"systemctl", "--user"}, args...)
}

// domain returns the user's own domain in launchd.
func domain() string { return fmt.Sprintf("gui/%d", os.Getuid()) }

// run runs a command of the manager.
func (m Manager) run(ctx context.Context, command []string) error {
	line := strings.Join(command, " ")
	if m.DryRun {
		m.sayf("would run %s\n", line)
		return nil
	}
	m.sayf("%s\n", line)
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, bytes.TrimSpace(out))
	}
	return nil
}

func (m Manager) sayf(format string, args ...any) { fmt.Fprintf(m.Out, format, args...) }

// write writes a file atomically.
func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return disk.WriteFile(path, []byte(text), 0o644)
}
