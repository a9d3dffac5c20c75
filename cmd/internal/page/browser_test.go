package page_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestInABrowser: every view in a real Chromium, against a real server, and axe finds no serious fault. PAGE_SHOTS is a folder
// for screenshots.
func TestInABrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium: apt-get install chromium")
	}
	if _, err := os.Stat("node_modules/playwright-core"); err != nil {
		t.Skip("playwright-core is not installed: make page")
	}
	dir, err := os.MkdirTemp("", "rouse-page-") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	rouse := filepath.Join(dir, "bin", "rouse") // the server has a folder rouse
	if out, err := exec.Command("go", "build", "-o", rouse, "../../rouse").CombinedOutput(); err != nil {
		t.Fatalf("build rouse: %v\n%s", err, out)
	}
	env := append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "ROUSE_SERVER=")
	server := exec.Command(rouse, "up", "--no-gpu", "--listen", "127.0.0.1:0", "--log-format", "text")
	server.Env = env
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "page:") {
	}
	if strings.Contains(lines.Text(), "token") {
		t.Error("the token is printed where there is no terminal")
	}
	go func() { // ends with the server; what it prints must not fill the pipe
		for lines.Scan() {
		}
	}()
	ui := exec.Command(rouse, "ui")
	ui.Env = env
	address, err := ui.Output()
	if err != nil {
		t.Fatalf("rouse ui: %v", err)
	}
	browser := exec.CommandContext(t.Context(), "node", "test/browser.mjs", chromium, strings.TrimSpace(string(address)), os.Getenv("PAGE_SHOTS"))
	said, err := browser.CombinedOutput()
	t.Logf("%s", said)
	if err != nil {
		t.Error(err)
	}
}
