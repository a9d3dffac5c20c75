package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// openAPI is how OpenAI describes its answers; nil: it can't be had here, and CI fails for it.
var openAPI *apiDescription

// describe loads the descriptions: those that ROUSE_OPENAPI names, with colons between them, or else those that come
// with a module of the clients': 2.3.0 for chats and responses, 1.2.0 for the rest.
func describe() error {
	files := filepath.SplitList(os.Getenv("ROUSE_OPENAPI"))
	if len(files) == 0 {
		const examples = "github.com/ogen-go/ogen"
		for _, args := range [][]string{{"mod", "download", examples}, {"list", "-m", "-f", "{{.Dir}}", examples}} {
			cmd := exec.Command("go", args...)
			cmd.Dir = filepath.Join("clients", "go")
			out, err := cmd.Output()
			if err != nil {
				return fmt.Errorf("get the descriptions of OpenAI's API: go %s in e2e/clients/go: %w", strings.Join(args, " "), err)
			}
			dir := filepath.Join(strings.TrimSpace(string(out)), "_testdata", "examples")
			files = []string{filepath.Join(dir, "openai-2.3.0.openapi.yaml"), filepath.Join(dir, "openai-1.2.0.openapi.yaml")}
		}
	}
	d, err := loadDescriptions(files...)
	if err != nil {
		return err
	}
	openAPI = d
	return nil
}

// judged checks the traffic between the clients of a place and its server.
type judged struct {
	tap *tap

	mu    sync.Mutex
	wrong []error
	seen  int
}

// judge checks every answer that the server's clients get, until the place is closed.
func (p *place) judge() error {
	s := p.server
	if openAPI == nil {
		return nil
	}
	u, err := url.Parse(s.url)
	if err != nil {
		return err
	}
	j := &judged{}
	j.tap, err = newTap(u.Host, func(x httpExchange) {
		if p.strange && x.Status < http.StatusBadRequest {
			return
		}
		err := openAPI.Judge(x)
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.seen++; err != nil && len(j.wrong) < 10 {
			j.wrong = append(j.wrong, err)
		}
	})
	if err != nil {
		return err
	}
	u.Host = j.tap.Addr()
	s.url, p.judged = u.String(), append(p.judged, j)
	return nil
}

// wrongs ends the checks and returns the errors.
func (j *judged) wrongs() error {
	j.tap.Close()
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.wrong) > 0 {
		return fmt.Errorf("answers are not as OpenAI describes them: %w", errors.Join(j.wrong...))
	}
	return nil
}
