package cli

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func unitOptionsOf(args ...string) serviceOptions {
	return serviceOptions{Program: "/bin/true", Args: args, Drain: 30 * time.Second}
}

// TestUnitIsUnderstood has systemd read the units.
func TestUnitIsUnderstood(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze")
	}
	for _, system := range []bool{true, false} {
		o := unitOptionsOf("--ollama", "--model", "a b=/models/50% $HOME/x.gguf")
		o.System, o.Dir = system, "/tmp"
		path := filepath.Join(t.TempDir(), "rouse.service")
		if err := os.WriteFile(path, []byte(systemdUnit(o)), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"verify", "--man=no", path}
		if !system {
			args = slices.Insert(args, 1, "--user")
		}
		cmd := exec.Command(analyze, args...)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("rouse.service:")) {
			t.Errorf("system %v: %v\n%s\n%s", system, err, out, systemdUnit(o))
		}
	}
}

// TestProgramsPath: in a program's path a $ is a $ (systemd.service(5)), and a % is written twice.
func TestProgramsPath(t *testing.T) {
	o := unitOptionsOf("--model", "$HOME/x")
	o.Program = "/opt/a$b 5%/rouse"
	if want, unit := `ExecStart="/opt/a$b 5%%/rouse" up --watch --log-format json --model $$HOME/x`+"\n", systemdUnit(o); !strings.Contains(unit, want) {
		t.Errorf("got %s, want %s", unit, want)
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze")
	}
	dir := filepath.Join(t.TempDir(), "a$b 5%")
	o.Program = filepath.Join(dir, "rouse")
	path := filepath.Join(dir, "rouse.service")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Symlink("/bin/true", o.Program), os.WriteFile(path, []byte(systemdUnit(o)), 0o600)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(analyze, "verify", "--man=no", path)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("rouse.service:")) {
		t.Errorf("%v\n%s\n%s", err, out, systemdUnit(o))
	}
}

// TestUnitIsClosed has systemd weigh the sandbox of the system's unit: 2.4 of 10, of which most is that it serves a network and has devices.
func TestUnitIsClosed(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze")
	}
	o := unitOptionsOf()
	o.System = true
	path := filepath.Join(t.TempDir(), "rouse.service")
	if err := os.WriteFile(path, []byte(systemdUnit(o)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "security", "--no-pager", "--offline=true", "--threshold=25", path).CombinedOutput()
	if bytes.Contains(out, []byte("unrecognized option")) {
		t.Skip("this systemd weighs no files")
	}
	if err != nil || !bytes.Contains(out, []byte("Overall exposure level for rouse.service: 2.")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestUnit checks that arguments are quoted, and that the sandbox keeps no models or GPUs out.
func TestUnit(t *testing.T) {
	o := unitOptionsOf("--model", `50% of $HOME "x"`)
	unit := systemdUnit(o)
	if want := `ExecStart=/bin/true up --watch --log-format json --model "50%% of $$HOME \"x\""` + "\n"; !strings.Contains(unit, want) {
		t.Errorf("lacks %q:\n%s", want, unit)
	}
	if !strings.Contains(unit, "TimeoutStopSec=50\n") || strings.Contains(unit, "DynamicUser") {
		t.Errorf("the unit of a user is\n%s", unit)
	}
	o.System = true
	unit = systemdUnit(o)
	for _, no := range []string{"PrivateDevices=yes", "MemoryDenyWriteExecute=yes", "ProtectHome=yes", "DevicePolicy=strict"} {
		if strings.Contains(unit, no) {
			t.Errorf("%s keeps models or GPUs out", no)
		}
	}
	for _, want := range []string{"DynamicUser=yes", "ProtectSystem=strict", "NoNewPrivileges=yes", "WantedBy=multi-user.target"} {
		if !strings.Contains(unit, want+"\n") {
			t.Errorf("the system's unit lacks %s", want)
		}
	}
	for _, bad := range []serviceOptions{{Program: "rouse"}, unitOptionsOf("a\nExecStartPre=/bin/sh")} {
		if bad.Validate() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// TestPlist checks that the file is XML and that arguments survive it.
func TestPlist(t *testing.T) {
	text := launchdPlist(unitOptionsOf("--model", "<a>&b"), "/Users/ann/Library/Logs")
	var words []string
	dec := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if c, is := token.(xml.CharData); is && strings.TrimSpace(string(c)) != "" {
			words = append(words, string(c))
		}
	}
	for _, want := range []string{"<a>&b", launchdLabel, "/Users/ann/Library/Logs/rouse.log", "50"} {
		if !slices.Contains(words, want) {
			t.Errorf("lacks %q: %q", want, words)
		}
	}
}

// TestPlistIsUnderstood has Python's parser of property lists read the agent, as launchd would.
func TestPlistIsUnderstood(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	o := unitOptionsOf("--model", `<a>&"b" '50%' é`, "--memory", "2Gi")
	o.Dir = "/Users/ann/my models"
	read := exec.Command(python, "-c", "import json, plistlib, sys; json.dump(plistlib.loads(sys.stdin.buffer.read(), fmt=plistlib.FMT_XML), sys.stdout)")
	read.Stdin = strings.NewReader(launchdPlist(o, "/Users/ann/Library/Logs"))
	out, err := read.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, launchdPlist(o, "/Users/ann/Library/Logs"))
	}
	var got map[string]any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"Label": launchdLabel, "ProgramArguments": []any{"/bin/true", "up", "--watch", "--log-format", "json", "--model", `<a>&"b" '50%' é`, "--memory", "2Gi"},
		"WorkingDirectory": "/Users/ann/my models", "RunAtLoad": true, "KeepAlive": map[string]any{"SuccessfulExit": false}, "ExitTimeOut": 50.0, "ProcessType": "Interactive",
		"StandardOutPath": "/Users/ann/Library/Logs/rouse.log", "StandardErrorPath": "/Users/ann/Library/Logs/rouse.log",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the agent (-want +got):\n%s", diff)
	}
}

// fakeManager is a systemctl that notes how it was called, and says that the service runs where there is a file "active".
func fakeManager(t *testing.T) (calls func() string, active string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	log, active := filepath.Join(dir, "log"), filepath.Join(dir, "active")
	script := "#!/bin/sh\necho \"$@\" >>" + log + "\ncase \"$*\" in *is-active*) test -e " + active + ";; esac\n"
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return func() string {
		raw, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		_ = os.Remove(log)
		return strings.ReplaceAll(string(raw), "\n", "; ")
	}, active
}

func TestInstall(t *testing.T) {
	calls, active := fakeManager(t)
	ctx := t.Context()
	var out bytes.Buffer
	m := serviceManager{Kind: systemd, Out: &out}
	path, err := m.Path()
	if err != nil {
		t.Fatal(err)
	}

	// Without doing it; while another server runs.
	dry := m
	dry.DryRun = true
	if err := dry.Install(ctx, unitOptionsOf(), ""); err != nil || calls() != "" || !strings.Contains(out.String(), "would run systemctl --user enable --now rouse.service") {
		t.Errorf("a dry run: %v, %s", err, out.String())
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a dry run writes")
	}
	if err := m.Install(ctx, unitOptionsOf(), "a server runs at 127.0.0.1:8080, as process 7"); err == nil || !strings.Contains(err.Error(), "process 7: stop it first") {
		t.Errorf("over a running server: %v", err)
	}

	if err := m.Install(ctx, unitOptionsOf(), ""); err != nil {
		t.Fatal(err)
	}
	if got, want := calls(), "--user daemon-reload; --user enable --now rouse.service; "; got != want {
		t.Errorf("called are %q, want %q", got, want)
	}

	// While it runs, installing the same again restarts nothing, although the service listens. Another unit restarts
	// it.
	if err := os.WriteFile(active, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Install(ctx, unitOptionsOf(), "a server runs"); err != nil || strings.Contains(calls(), "restart") {
		t.Errorf("the same again: %v", err)
	}
	if err := m.Install(ctx, unitOptionsOf("--ollama"), "a server runs"); err != nil {
		t.Error(err)
	}
	if got := calls(); !strings.Contains(got, "daemon-reload; --user restart rouse.service") {
		t.Errorf("another file: called are %q", got)
	}

	if err := m.Uninstall(ctx); err != nil {
		t.Error(err)
	}
	if got, want := calls(), "--user disable --now rouse.service; --user daemon-reload; "; got != want {
		t.Errorf("called are %q, want %q", got, want)
	}
	if err := m.Uninstall(ctx); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("uninstalled twice: %v", err)
	}
	if err := m.Status(ctx); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the status of none: %v", err)
	}

	// A file that was not written by Rouse.
	if err := os.WriteFile(path, []byte("[Service]\nExecStart=/mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{m.Install(ctx, unitOptionsOf(), ""), m.Uninstall(ctx)} {
		if err == nil || !strings.Contains(err.Error(), "was not written by rouse") {
			t.Errorf("somebody else's file: %v", err)
		}
	}
	m.Force = true
	if err := m.Install(ctx, unitOptionsOf(), ""); err != nil {
		t.Error(err)
	}
}

// TestPackagedUnit: the unit of the packages is the one that rouse service install writes.
func TestPackagedUnit(t *testing.T) {
	packaged, err := os.ReadFile("../../../internal/release/rouse.service")
	if err != nil {
		t.Fatal(err)
	}
	_, want, _ := strings.Cut(systemdUnit(serviceOptions{Program: "/usr/bin/rouse", Drain: 30 * time.Second}), "\n")
	if _, got, _ := strings.Cut(string(packaged), "\n"); got != want {
		t.Errorf("it has\n%s\nwant\n%s", got, want)
	}
}
