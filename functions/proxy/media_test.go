package proxy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/functions/proxy"
)

// TestMedia: media that the runtime would fetch or open are refused in every API's form; inline media pass.
func TestMedia(t *testing.T) {
	reached := 0
	server := func(w http.ResponseWriter, _ *http.Request) { reached++; fmt.Fprint(w, `{}`) }
	for _, c := range []struct {
		name, path, body string
		hosts            []string
		want             int
	}{
		{"chat", "/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://169.254.169.254/latest"}}]}]}`, nil, 400},
		{"chat, a text", "/v1/chat/completions", `{"messages":[{"content":[{"type":"image_url","image_url":"https://a.example/x.png"}]}]}`, nil, 400},
		{"sound", "/v1/chat/completions", `{"messages":[{"content":[{"type":"audio_url","audio_url":{"url":"https://a.example/x"}}]}]}`, nil, 400},
		{"video", "/v1/chat/completions", `{"messages":[{"content":[{"type":"video_url","video_url":{"url":"https://a.example/x"}}]}]}`, nil, 400},
		{"a sound as data", "/v1/chat/completions", `{"messages":[{"content":[{"type":"input_audio","input_audio":{"data":"http://a.example/x","format":"wav"}}]}]}`, nil, 400},
		{"a file", "/v1/chat/completions", `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"file:///etc/x.png"}}]}]}`, nil, 400},
		{"a path", "/v1/chat/completions", `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"/etc/x"}}]}]}`, nil, 400},
		{"escaped", "/v1/chat/completions", `{"messages":[{"content":[{"im\u0061ge_url":{"ur\u006c":"http\u003a//a.example/x"}}]}]}`, nil, 400},
		{"the second of two", "/v1/chat/completions", `{"messages":[{"content":[{"image_url":{"url":"data:,x"},"image_url":{"url":"http://a.example/x"}}]}]}`, nil, 400},
		{"no JSON", "/v1/chat/completions", `{"temperature":NaN,"messages":[{"content":[{"image_url":{"url":"http://a.example/x"}}]}]}`, nil, 400},
		{"responses", "/v1/responses", `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"https://a.example/x"}]}]}`, nil, 400},
		{"a response's file", "/v1/responses", `{"input":[{"content":[{"type":"input_file","file_url":"https://a.example/x"}]}]}`, nil, 400},
		{"messages", "/v1/messages", `{"messages":[{"content":[{"type":"image","source":{"type":"url","url":"https://a.example/x"}}]}]}`, nil, 400},
		{"a tool's result", "/v1/messages", `{"messages":[{"content":[{"type":"tool_result","content":[{"type":"document","source":{"type":"url","url":"https://a.example/x"}}]}]}]}`, nil, 400},
		{"embeddings", "/v1/embeddings", `{"input":[{"text":"a","image":"https://a.example/x"}]}`, nil, 400},
		{"Ollama", "/api/generate", `{"prompt":"a","images":["https://a.example/x"]}`, nil, 400},
		{"another host", "/v1/chat/completions", `{"messages":[{"content":[{"image_url":{"url":"https://b.example/x"}}]}]}`, []string{"a.example"}, 400},
		{"a user", "/v1/chat/completions", `{"messages":[{"content":[{"image_url":{"url":"https://a.example@b.example/x"}}]}]}`, []string{"a.example"}, 400},
		{"a port", "/v1/chat/completions", `{"messages":[{"content":[{"image_url":{"url":"https://a.example:1/x"}}]}]}`, []string{"a.example"}, 400},
		{"a backslash", "/v1/chat/completions", `{"messages":[{"content":[{"image_url":{"url":"https://a.example/\\@b.example/x"}}]}]}`, []string{"a.example"}, 400},
		{"another scheme", "/v1/chat/completions", `{"messages":[{"content":[{"image_url":{"url":"ftp://a.example/x"}}]}]}`, []string{"a.example"}, 400},

		{"its host", "/v1/chat/completions", `{"messages":[{"content":[{"image_url":{"url":"https://A.example/x?y=1"}}]}]}`, []string{"a.example"}, 200},
		{"its host's port", "/v1/chat/completions", `{"messages":[{"content":[{"image_url":{"url":"http://a.example:81/x"}}]}]}`, []string{"a.example:81"}, 200},
		{"data", "/v1/chat/completions", `{"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,aGk="}},{"type":"text","text":"see https://a.example"}]}]}`, nil, 200},
		{"base64", "/api/generate", `{"prompt":"an image at https://a.example/x","images":["/9j/4AAQ","iVBORw0KGgo="]}`, nil, 200},
		{"Anthropic's data", "/v1/messages", `{"messages":[{"content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"see https://a.example"}}]}]}`, nil, 200},
		{"a tool", "/v1/chat/completions", `{"messages":[],"tools":[{"function":{"parameters":{"properties":{"image_url":{"type":"string","url":"https://a.example"}}}}}],"metadata":{"image":"nginx:1"}}`, nil, 200},
		{"a text", "/v1/completions", `{"prompt":"image_url: https://a.example/x"}`, nil, 200},
	} {
		before := reached
		s := set(t, server, func(cfg *proxy.Config) { cfg.MediaHosts = c.hosts })
		resp, answer, err := s.post(t, c.path, c.body)
		if err != nil {
			t.Fatal(err)
		}
		code := resp.StatusCode
		if code != c.want || (reached > before) != (c.want == 200) {
			t.Errorf("%s: %d %s, want %d", c.name, code, answer, c.want)
		}
		if c.want == 400 && c.name != "no JSON" && (!strings.Contains(answer, "data: URL") || !strings.Contains(answer, "rouse.dev/media-hosts")) {
			t.Errorf("%s: %s does not say what to do", c.name, answer)
		}
	}
	s := set(t, server)
	for header, want := range map[string]int{
		`Content-Disposition: form-data; name="url"`:                                                 400,
		`Content-Disposition: form-data; name="image[]"`:                                             400,
		`Content-Disposition: attachment; name="url"`:                                                400, // Starlette does not look at the type
		`Content-Disposition: form-data; name="url"; =x`:                                             400, // nor does it mind this
		"Content-Disposition: form-data; name=\"a\"\r\nContent-Disposition: form-data; name=\"url\"": 400,
		"x": 400,
		`Content-Disposition: form-data; name="prompt"`:                  200,
		`Content-Disposition: form-data; name="image"; filename="x.png"`: 200,
	} {
		form := "--b\r\n" + header + "\r\n\r\nhttps://a.example/x\r\n--b--\r\n"
		resp, err := http.Post(s.URL+"/v1/audio/transcriptions", "multipart/form-data; boundary=b", strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("a form with the part %s: %s, want %d", header, resp.Status, want)
		}
	}
}
