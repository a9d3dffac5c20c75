package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// noise is n bytes that hold everything, the same each time.
func noise(n int) []byte {
	b := make([]byte, n)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(b)
	return b
}

// form is a multipart body; each part is "name=value", or "name@file" with noise in it.
func form(t *testing.T, boundary string, size int, parts ...string) (body []byte, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		var err error
		if name, value, isField := strings.Cut(part, "="); isField {
			err = w.WriteField(name, value)
		} else {
			name, file, _ := strings.Cut(part, "@")
			var to io.Writer
			if to, err = w.CreateFormFile(name, file); err == nil {
				_, err = to.Write(noise(size))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), w.FormDataContentType()
}

// TestBodiesPass: sounds and images reach a runtime byte by byte as they were sent, and the model is found in them.
func TestBodiesPass(t *testing.T) {
	t.Parallel()
	p := newStrange(t, "-f", absolute(t, fakes))
	passes := func(name, path, contentType string, body []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.server.url+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", contentType)
		req.Header.Set("X-Fault", "digest")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var got struct {
			Type, SHA256 string
			Bytes        int
		}
		raw, err := io.ReadAll(resp.Body)
		sum := sha256.Sum256(body)
		if err != nil || json.Unmarshal(raw, &got) != nil || got.SHA256 != hex.EncodeToString(sum[:]) || got.Bytes != len(body) || got.Type != contentType {
			t.Errorf("%s: %s %.300s, want %d bytes of %s with the sum %x (%v)", name, resp.Status, raw, len(body), contentType, sum, err)
		}
	}
	for name, parts := range map[string][]string{
		"the model first":      {"model=fake", "file@a.mp3", "language=en"},
		"the model last":       {"file@a.mp3", "timestamp_granularities[]=word", "timestamp_granularities[]=segment", "model=fake"},
		"two files":            {"file@a.mp3", "model=fake", "other@b.bin"},
		"a name that needs it": {`file@o"d\d.wav`, "prompt=zwei\r\nZeilen", "model=fake"},
	} {
		for _, size := range []int{0, 1, 1 << 20} {
			for _, boundary := range []string{"b", "----WebKitFormBoundary7MA4YWxkTrZu0gW", "a b:c=d'?"} {
				body, contentType := form(t, boundary, size, parts...)
				passes(fmt.Sprintf("%s, %d bytes, %q", name, size, boundary), "/v1/audio/transcriptions", contentType, body)
			}
		}
	}
	body, contentType := form(t, "b", 10, "file@a.mp3", "model=fake")
	passes("translations", "/v1/audio/translations", contentType, body)
	passes("an edit", "/v1/images/edits", contentType, body)
	passes("an edit in JSON", "/v1/images/edits", "application/json", []byte(`{"model":"fake","prompt":"red"}`))
	passes("an image to be made", "/v1/images/generations", "application/json", []byte(`{"model":"fake","prompt":"a cat","stream":true}`))
	passes("speech", "/v1/audio/speech", "application/json", []byte(`{"model":"fake","input":"hello","voice":"alloy"}`))

	image := "data:image/png;base64," + base64.StdEncoding.EncodeToString(noise(300<<10))
	for name, text := range map[string]string{
		"an image":         `{"model":"fake","messages":[{"role":"user","content":[{"type":"text","text":"what is this?"},{"type":"image_url","image_url":{"url":"` + image + `","detail":"low"}}]}]}`,
		"a sound":          `{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"` + image[22:] + `","format":"wav"}}]}],"model":"fake","modalities":["text"]}`,
		"odd, but legal":   " {\r\n\t\"messages\" : [ {\"role\":\"us\\u0065r\", \"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image\\/png;base64,AA==\"},\"a\":1,\"a\":2}]}],\n\"model\":\"fake\", \"n\" : 1E0, \"unknown\":{\"\":[null,-0.0]} }\n",
		"numbers as sent":  `{"model":"fake","seed":12345678901234567890123,"temperature":1.00000000000000000001,"messages":[]}`,
		"a file of a chat": `{"model":"fake","messages":[{"role":"user","content":[{"type":"file","file":{"filename":"x.pdf","file_data":"data:application/pdf;base64,AAAA"}}]}]}`,
	} {
		passes(name, "/v1/chat/completions", "application/json", []byte(text))
	}
}

// TestRealtime opens a WebSocket of the Realtime API while its model has no instance.
func TestRealtime(t *testing.T) {
	t.Parallel()
	p := newServer(t, "-f", absolute(t, fakes))
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.server.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * patience))
	fmt.Fprint(conn, "GET /v1/realtime?model=fake HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %+v, %v", resp, err)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := in.ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("got %q, %v", line, err)
	}
}

// TestTranscribe: the official client's form, and forms without a model, of another one, or broken.
func TestTranscribe(t *testing.T) {
	t.Parallel()
	p := newServer(t, "-f", absolute(t, fakes))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	c := newOpenAI(p, option.WithMaxRetries(0))
	var got struct{ Bytes int }
	_, err := c.Audio.Transcriptions.New(ctx, openai.AudioTranscriptionNewParams{Model: "fake", File: openai.File(bytes.NewReader(noise(5000)), "a.wav", "audio/wav")}, option.WithResponseBodyInto(&got))
	if err != nil || got.Bytes < 5000 {
		t.Errorf("the runtime got %d bytes, %v", got.Bytes, err)
	}
	for name, tt := range map[string]struct {
		parts  []string
		spoil  func([]byte) []byte
		status int
		words  string
	}{
		"an unknown model": {parts: []string{"file@a", "model=pica"}, status: 404, words: "model_not_found"},
		"no model":         {parts: []string{"file@a"}, status: 400, words: "model"},
		"two models":       {parts: []string{"model=fake", "model=slow", "file@a"}, status: 400, words: "model"},
		"cut":              {parts: []string{"file@a", "model=fake"}, spoil: func(b []byte) []byte { return b[:len(b)-20] }, status: 400, words: "model"},
	} {
		body, contentType := form(t, "b", 100, tt.parts...)
		if tt.spoil != nil {
			body = tt.spoil(body)
		}
		resp, err := http.Post(p.server.url+"/v1/audio/transcriptions", contentType, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tt.status || !strings.Contains(string(raw), tt.words) || !strings.Contains(string(raw), `"error":{`) {
			t.Errorf("%s: %d %s, want %d and %q", name, resp.StatusCode, raw, tt.status, tt.words)
		}
	}
}
