package knative

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/e2e/cluster"
)

// three are three clusters behind two front doors: the Kubernetes of these tests, and two servers on this machine. All have the
// function three-shared, and Kubernetes alone three-alone.
type three struct {
	t      *testing.T
	c      *cluster.Cluster
	fronts [2]*server
	urls   [2]string
	desk   *server
}

// freePort returns a free port of this machine.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", cluster.HostIP+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func newThree(t *testing.T) *three {
	t.Helper()
	w := &three{t: t, c: rouse(t)}
	for _, name := range []string{"three-shared", "three-alone"} {
		create(t, name, functionImage, lasting)
	}
	dir := t.TempDir()
	certificate := filepath.Join(dir, "cert.pem")
	key := selfSigned(t, certificate, cluster.HostIP)
	token := func(name string) string { return writeFile(t, dir, name, []byte(name)) }
	names := [2]string{"x", "y"}
	var agents [2]string
	for k := range names {
		agents[k] = fmt.Sprintf("%s:%d", cluster.HostIP, freePort(t))
	}
	for k, name := range names {
		file := fmt.Sprintf("name: %s\nlisten: %s\ncertificate: %s\nkey: %s\npeers: {addresses: [%q], tokenFile: %s, authority: %s}\nclusters:\n", name, agents[k], certificate, key, agents[1-k], token(name), certificate)
		for _, of := range []string{"rack", "desk", "shelf", names[1-k]} {
			file += fmt.Sprintf("- {name: %s, tokenHashes: [%x], functions: [\"default/three-*\"], front: %v}\n", of, sha256.Sum256([]byte(of)), of == names[1-k])
		}
		w.urls[k] = fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
		w.fronts[k] = newServer(t, "--listen", strings.TrimPrefix(w.urls[k], "http://"), "--clusters", writeFile(t, dir, name+".yaml", []byte(file)))
	}
	machine := func(name string) *server {
		return newServer(t, "--listen", "127.0.0.1:0", "--model", "three-shared=pico", "--join", agents[0], "--join", agents[1], "--cluster", name, "--cluster-token-file", token(name), "--front-ca", certificate)
	}
	w.desk = machine("desk")
	machine("shelf")
	join(t, w.c, &frontDoorElsewhere{agents: agents[1], certificate: certificate}, "rack") // x reaches those functions through y
	for k := range names {
		w.known(k)
	}
	return w
}

// known waits until a front door has both functions.
func (w *three) known(front int) {
	w.t.Helper()
	f := &frontDoorElsewhere{url: w.urls[front]}
	for _, name := range []string{"three-shared", "three-alone"} {
		eventually(w.t, "a front door knows "+name, func() string { return f.knows(w.t.Context(), name) })
	}
}

// ask sends request i to a front door, and says whether its own answer came whole. cut says that an error event may end it.
func (w *three) ask(ctx context.Context, i int64, front int, cut bool) error {
	model, want := []string{"three-shared", "three-alone"}[i/2%2], pair(int(i))
	stream := i%3 == 0
	raw, err := json.Marshal(chat(model, want, func(m map[string]any) { m["stream"] = stream }))
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.urls[front]+"/v1/chat/completions", bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if !stream || resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			return fmt.Errorf("%s at front door %d: %s, %w, want %q: %s", model, front, resp.Status, err, want, text)
		}
		return nil
	}
	got, failed, done := "", false, false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
			Error   *struct{ Code string }
		}
		switch {
		case !found:
		case data == "[DONE]":
			done = true
		case json.Unmarshal([]byte(data), &chunk) != nil:
			return fmt.Errorf("%s: %q is no event", model, data)
		case chunk.Error != nil:
			failed = true
		case len(chunk.Choices) > 0:
			got += chunk.Choices[0].Delta.Content
		}
	}
	switch {
	case done && got == want, failed && cut && strings.HasPrefix(want, got):
		return nil
	}
	return fmt.Errorf("%s at front door %d: got %q, ended %t, with an error %t; want %q whole", model, front, got, done, failed, want)
}

// threeClustersAndTwoFrontDoors has Kubernetes and two machines as clusters of two front doors. Under load the agents
// of Kubernetes, a machine and a front door are killed. No answer is another's, and no cut answer looks whole. Only
// requests at the killed front door may be lost before their answer begins.
func threeClustersAndTwoFrontDoors(t *testing.T) {
	w := newThree(t)
	killed := 0 // if front door 0 is killed, its clients may lose their requests
	for _, fault := range []struct {
		name string
		one  bool // only the other front door is asked
		do   func()
	}{
		{"agents", false, func() {
			for _, p := range pods(t, w.c, "app=rouse-agent", "knative-serving") {
				kill(t, w.c, p.Metadata.Name)
			}
		}},
		{"machine", false, func() { w.desk.kill(); w.desk.start(t) }},
		{"front door", true, func() { w.fronts[killed].kill(); w.fronts[killed].start(t); w.known(killed) }},
	} {
		l := underLoad(t, 6, func(ctx context.Context, i int64) error {
			front := int(i % 2)
			if fault.one {
				front = 1 - killed
			}
			return w.ask(ctx, i, front, true)
		})
		l.goOn(t, 40)
		fault.do()
		l.goOn(t, 80)
		for _, failure := range l.end() {
			t.Errorf("%s: %s", fault.name, failure)
		}
	}
	for i := range int64(12) {
		if err := w.ask(t.Context(), i, int(i%2), false); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	}
}
