package jobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/store"
)

const good = `{"custom_id":"good","method":"POST","url":"/v1/embeddings","body":{"model":"m","input":"x"}}`

// TestFaults: each invalid line is reported by its number.
func TestFaults(t *testing.T) {
	small := Config{MaxLines: 3, MaxLine: 400, MaxModels: 2}.withDefaults()
	other := func(from, to string) string { return strings.Replace(good, from, to, 1) }
	for name, tc := range map[string]struct {
		text string
		want []string // "line code param"
	}{
		"right":               {good + "\n", nil},
		"without an end":      {good, nil},
		"with returns":        {good + "\r\n\r\n" + other("good", "2") + "\r\n", nil},
		"empty":               {"", []string{"0 empty_file "}},
		"blank":               {"\n \n", []string{"0 empty_file "}},
		"no JSON":             {good + "\nx\n\n{\"custom_id\":", []string{"2 invalid_json_line ", "4 invalid_json_line "}},
		"a list":              {"[1]", []string{"1 invalid_json_line "}},
		"no id":               {other(`"custom_id":"good",`, ""), []string{"1 missing_required_parameter custom_id"}},
		"an id that is none":  {other(`"good"`, "7"), []string{"1 invalid_json_line "}},
		"an empty id":         {other(`"good"`, `""`), []string{"1 missing_required_parameter custom_id"}},
		"a long id":           {other("good", strings.Repeat("x", 300)) + "\n" + other(`"good"`, `"`+strings.Repeat("x", 513)+`"`), []string{"2 line_too_long "}},
		"the same id":         {good + "\n" + good, []string{"2 duplicate_custom_id custom_id"}},
		"another method":      {other("POST", "GET"), []string{"1 invalid_method method"}},
		"another path":        {other("embeddings", "completions"), []string{"1 invalid_url url"}},
		"no body":             {other(`"body":{"model":"m","input":"x"}`, `"x":1`), []string{"1 missing_required_parameter body"}},
		"a body that is none": {other(`{"model":"m","input":"x"}`, `"text"`), []string{"1 missing_required_parameter body"}},
		"no model":            {other(`"model":"m",`, ""), []string{"1 missing_required_parameter body.model"}},
		"two models":          {other(`"model":"m"`, `"model":"m","model":"n"`), []string{"1 invalid_request body"}},
		"a stream":            {other(`"input"`, `"stream":true,"input"`), []string{"1 streaming_unsupported body.stream"}},
		"many models":         {good + "\n" + other("good", "2") + "\n" + strings.NewReplacer("good", "3", `"m"`, `"n"`).Replace(good), nil},
		"too many models":     {strings.NewReplacer("good", "1", `"m"`, `"n"`).Replace(good) + "\n" + good + "\n" + strings.NewReplacer("good", "3", `"m"`, `"o"`).Replace(good), []string{"3 too_many_models body.model"}},
		"too many lines":      {good + strings.Repeat("\n"+good, 3), []string{"2 duplicate_custom_id custom_id", "3 duplicate_custom_id custom_id", "4 duplicate_custom_id custom_id"}},
		"more lines": {good + "\n" + other("good", "2") + "\n" + other("good", "3") + "\n" + other("good", "4") + "\nx",
			[]string{"4 too_many_tasks "}},
		"not UTF-8": {other(`"x"`, "\"\xff\""), []string{"1 invalid_request body"}},
	} {
		t.Run(name, func(t *testing.T) {
			in, faults, err := check(strings.NewReader(tc.text), "/v1/embeddings", small)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range faults {
				got = append(got, fmt.Sprintf("%d %s %s", f.Line, f.Code, f.Param))
				if f.Message == "" {
					t.Errorf("%+v says nothing", f)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			for _, l := range in.lines {
				if text := tc.text[l.at : l.at+int64(l.size)]; !json.Valid([]byte(text)) {
					t.Errorf("a line is %q", text)
				}
			}
		})
	}
}

// FuzzCheck: for any input, each accepted line is valid and at its offset, and other inputs report errors.
func FuzzCheck(f *testing.F) {
	f.Add(good)
	f.Add(good + "\n\n\r\n" + strings.Replace(good, "good", "b", 1) + "\r\n")
	f.Add("{}\n[]\nnull\n\"")
	f.Add(strings.Repeat("x", 5000))
	cfg := Config{MaxLines: 4, MaxLine: 1 << 10, MaxModels: 2}.withDefaults()
	f.Fuzz(func(t *testing.T, text string) {
		in, faults, err := check(strings.NewReader(text), "/v1/embeddings", cfg)
		if err != nil {
			t.Fatal(err)
		}
		if len(in.lines) == 0 && len(faults) == 0 {
			t.Error("a file without requests is right")
		}
		if len(in.lines) > cfg.MaxLines || len(in.models) > cfg.MaxModels || len(faults) > maxFaults+1 {
			t.Errorf("%d lines, %d models, %d faults", len(in.lines), len(in.models), len(faults))
		}
		seen := map[string]bool{}
		for _, l := range in.lines {
			var q request
			var body struct {
				Model  string `json:"model"`
				Stream bool   `json:"stream"`
			}
			if err := json.Unmarshal([]byte(text[l.at:l.at+int64(l.size)]), &q); err != nil {
				t.Fatalf("line %+v: %v", l, err)
			}
			if err := json.Unmarshal(q.Body, &body); err != nil || body.Model != in.models[l.model] || body.Stream {
				t.Errorf("line %+v asks %+v, %v; want %s", l, body, err, in.models[l.model])
			}
			if seen[*q.ID] {
				t.Errorf("%q is there twice", *q.ID)
			}
			seen[*q.ID] = true
		}
	})
}

// TestByteOrderMark: a mark before the first line is not part of it, and lines are read at their offsets.
func TestByteOrderMark(t *testing.T) {
	line := `{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{"model":"m","input":"x"}}` + "\n"
	for text, want := range map[string]int{"\ufeff" + line: 1, "\ufeff" + line + strings.Replace(line, `"a"`, `"b"`, 1): 2, "\ufeff\n" + line: 1} {
		in, faults, err := check(strings.NewReader(text), "/v1/embeddings", Config{MaxLine: 1000, MaxLines: 10, MaxModels: 2})
		if err != nil || len(faults) > 0 || len(in.lines) != want {
			t.Fatalf("%q: %d lines, %v, %v", text, len(in.lines), faults, err)
		}
		for _, l := range in.lines {
			if text[l.at] != '{' || l.at+int64(l.size) > int64(len(text)) {
				t.Errorf("%q: a line is at %d of %d bytes", text, l.at, l.size)
			}
		}
	}
	if _, faults, _ := check(strings.NewReader(line+"\ufeff"+line), "/v1/embeddings", Config{MaxLine: 1000, MaxLines: 10, MaxModels: 2}); len(faults) == 0 {
		t.Error("a mark within is taken")
	}
}

// TestFails: a batch of a file with errors fails, and reports their lines.
func TestFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		o := b.ended("a", b.create("a", chats("m", 2)+"{}\n", "24h").ID)
		if o.Status != store.Failed || o.Failed == nil || o.Output != nil || o.Errors == nil || len(o.Errors.Data) != 1 || *o.Errors.Data[0].Line != 3 || o.Errors.Data[0].Code != "missing_required_parameter" {
			t.Errorf("ended %+v", o)
		}
		if n := len(b.front.requests()); n != 0 {
			t.Errorf("%d lines were sent", n)
		}
	})
}

// TestWrongRequests: an invalid request is refused with an explanation.
func TestWrongRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{MaxFile: 5000, MaxBatches: 1})
		id := b.file("a", good)
		ask := func(body string) string {
			w := b.do(http.MethodPost, pathBatches, "a", strings.NewReader(strings.ReplaceAll(body, "FILE", id)))
			return fmt.Sprint(w.Code, " ", w.Body)
		}
		const right = `{"input_file_id":"FILE","endpoint":"/v1/embeddings","completion_window":"24h"}`
		for _, tc := range []struct{ from, to, want string }{
			{right, "nonsense", "400 {.*no such JSON object"},
			{right, `{"completion_window":5}`, "400 {.*completion_window.*: want a string"},
			{right, strings.Repeat("x", 70_000), "413 "},
			{"FILE", "file-none", `400 .*there is no file .*"param":"input_file_id"`},
			{`"input_file_id":"FILE",`, "", `400 .*"code":"missing_required_parameter"`},
			{"/v1/embeddings", "/v1/models", "400 .*want one of /v1/chat/completions"},
			{"24h", "10s", "400 .*want a duration from 1m to 30d"},
			{"24h", "soon", "400 .*want a duration"},
			{"24h", "0d", "400 .*want a duration"},
			{`"24h"`, `"24h","metadata":{"k":"` + strings.Repeat("v", 513) + `"}`, "400 .*too long"},
			{`"24h"`, `"24h","metadata":{"k":1}`, "400 "},
			{`"24h"`, `"24h","output_expires_after":{"anchor":"created_at","seconds":5}`, "400 .*output_expires_after.seconds"},
		} {
			got := ask(strings.Replace(right, tc.from, tc.to, 1))
			status, words, _ := strings.Cut(tc.want, " ")
			for word := range strings.SplitSeq(strings.Trim(words, "{"), ".*") {
				if !strings.HasPrefix(got, status) || !strings.Contains(got, word) {
					t.Errorf("%s → %s: got %s, want %s", tc.from, tc.to, got, tc.want)
				}
			}
		}
		b.front.set("m", activator.Room{})
		if got := ask(strings.Replace(right, "24h", "7d", 1)); !strings.HasPrefix(got, "200") {
			t.Error(got)
		}
		if got := ask(right); !strings.HasPrefix(got, "429") {
			t.Errorf("more batches than there may be: %s", got)
		}
		if w := b.do(http.MethodDelete, pathFiles+"/"+id, "a", nil); w.Code != http.StatusConflict {
			t.Errorf("delete an input that is in use: %d %s", w.Code, w.Body)
		}
		for _, path := range []string{pathFiles + "?limit=0", pathFiles + "?limit=x", pathFiles + "?order=up", pathFiles + "?after=x", pathBatches + "?limit=101", pathBatches + "?after=x"} {
			if w := b.do(http.MethodGet, path, "a", nil); w.Code != http.StatusBadRequest {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
		for _, q := range []string{"PUT /v1/files", "GET /v1/files/x/y", "DELETE /v1/batches/x", "GET /v1/batches/../files"} {
			method, path, _ := strings.Cut(q, " ")
			if w := b.do(method, path, "a", nil); w.Code != http.StatusNotFound && w.Code != http.StatusMethodNotAllowed && w.Code != http.StatusMovedPermanently && w.Code != http.StatusTemporaryRedirect {
				t.Errorf("%s: %d %s", q, w.Code, w.Body)
			}
		}
		if got := b.do(http.MethodGet, "/v1/filesystem", "a", nil).Body.String(); !strings.HasPrefix(got, "next /v1/filesystem") {
			t.Errorf("another path: %s", got)
		}
	})
}

// TestUploads: an invalid upload is refused and leaves nothing.
func TestUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{MaxFile: 100_000})
		form := func(parts ...string) (status int, answer string) {
			body, media := formOf(parts...)
			w := b.do(http.MethodPost, pathFiles, "a", body, "Content-Type", media)
			return w.Code, w.Body.String()
		}
		for name, tc := range map[string]struct {
			parts  []string
			status int
			word   string
		}{
			"no purpose":      {[]string{"file", "x"}, 400, "purpose is missing"},
			"another purpose": {[]string{"purpose", "vision", "file", "x"}, 400, "want batch"},
			"no file":         {[]string{"purpose", "batch"}, 400, "file is missing"},
			"an empty file":   {[]string{"purpose", "batch", "file", ""}, 400, "empty_file"},
			"two files":       {[]string{"purpose", "batch", "file", "x", "file", "y"}, 400, "two files"},
			"a large field":   {[]string{"purpose", strings.Repeat("x", 2000)}, 400, "more than"},
			"many fields":     {strings.Fields(strings.Repeat("a b ", 20)), 400, "more than"},
			"a wrong expiry":  {[]string{"purpose", "batch", "file", "x", "expires_after[anchor]", "created_at", "expires_after[seconds]", "9"}, 400, "from 3600 to 2592000"},
			"a large file":    {[]string{"purpose", "batch", "file", strings.Repeat("x", 100_001)}, 413, "larger than the limit"},
			"a larger file":   {[]string{"purpose", "batch", "file", strings.Repeat("x", 300_000)}, 413, "larger than the limit"},
			"right":           {[]string{"file", "x", "purpose", "batch", "expires_after[anchor]", "created_at", "expires_after[seconds]", "3600"}, 200, `"status":"processed"`},
		} {
			if status, answer := form(tc.parts...); status != tc.status || !strings.Contains(answer, tc.word) {
				t.Errorf("%s: %d %s; want %d and %q", name, status, answer, tc.status, tc.word)
			}
		}
		if w := b.do(http.MethodPost, pathFiles, "a", strings.NewReader("{}"), "Content-Type", "application/json"); w.Code != http.StatusBadRequest {
			t.Errorf("no form: %d %s", w.Code, w.Body)
		}
		body, media := formOf("purpose", "batch", "file", "xyz")
		cut := body.Bytes()[:body.Len()-20]
		if w := b.do(http.MethodPost, pathFiles, "a", strings.NewReader(string(cut)), "Content-Type", media); w.Code != http.StatusBadRequest {
			t.Errorf("a form that is cut: %d %s", w.Code, w.Body)
		}
		if got := b.store.Bytes(); got != 8<<10+1 {
			t.Errorf("%d bytes are kept, want the record and the 1 of the file that is right", got)
		}
		time.Sleep(2 * time.Hour)
		if list := want[activator.Page[fileObject]](b, http.StatusOK, b.do(http.MethodGet, pathFiles, "a", nil)); len(list.Data) != 0 || b.store.Bytes() != 0 {
			t.Errorf("after its time: %+v, %d bytes", list, b.store.Bytes())
		}
	})
}

// FuzzUpload: any form is refused or stored as a whole.
func FuzzUpload(f *testing.F) {
	body, media := formOf("purpose", "batch", "file", good)
	f.Add(media, body.Bytes())
	f.Add(media, body.Bytes()[:70])
	f.Add("multipart/form-data; boundary=x", []byte("--x\r\nContent-Disposition: form-data; name=file; filename=\"../../a\"\r\n\r\nb\r\n--x\r\nContent-Disposition: form-data; name=purpose\r\n\r\nbatch\r\n--x--"))
	f.Add("multipart/form-data", []byte("--"))
	s, err := store.Open(store.Config{At: f.TempDir()}, nil)
	if err != nil {
		f.Fatal(err)
	}
	defer s.Close()
	server, err := New(Config{MaxFile: 1000}, s, &fakeFront{}, nil, prometheus.NewRegistry())
	if err != nil {
		f.Fatal(err)
	}
	h := server.Handler(http.NotFoundHandler())
	f.Fuzz(func(t *testing.T, media string, raw []byte) {
		b := &bench{t: t, handler: h}
		w := b.do(http.MethodPost, pathFiles, "a", bytes.NewReader(raw), "Content-Type", media)
		switch w.Code {
		case http.StatusOK:
			o := want[fileObject](b, http.StatusOK, w)
			if got := b.do(http.MethodGet, pathFiles+"/"+o.ID+"/content", "a", nil); int64(got.Body.Len()) != o.Bytes || s.Bytes() != 8<<10+o.Bytes || o.Bytes > 1000 {
				t.Errorf("%+v has %d bytes, %d are counted", o, got.Body.Len(), s.Bytes())
			}
			if got := b.do(http.MethodDelete, pathFiles+"/"+o.ID, "a", nil); got.Code != http.StatusOK {
				t.Errorf("delete it: %d %s", got.Code, got.Body)
			}
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		default:
			t.Errorf("got %d %s", w.Code, w.Body)
		}
		if s.Bytes() != 0 {
			t.Errorf("%d bytes are left", s.Bytes())
		}
	})
}

// TestLostFolder: an answer has an id, the client's if it sent one, and no path of the server.
func TestLostFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		if err := os.RemoveAll(b.dir); err != nil {
			t.Fatal(err)
		}
		body, media := formOf("purpose", "batch", "file", good)
		w := b.do(http.MethodPost, pathFiles, "a", body, "Content-Type", media, "X-Request-Id", "mine")
		if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `"code":"storage_failed"`) || strings.Contains(w.Body.String(), b.dir) || w.Header().Get("X-Request-Id") != "mine" {
			t.Errorf("an upload: %d %v %s", w.Code, w.Header(), w.Body)
		}
		for path, body := range map[string]string{"/v1/chat/completions": `{"model":"m","messages":[]}`, responsesPath: `{"model":"m","input":"a","background":true}`} {
			w := b.do(http.MethodPost, path, "a", strings.NewReader(body), "Prefer", "respond-async")
			if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `"code":"storage_failed"`) || strings.Contains(w.Body.String(), b.dir) {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
		if w := b.do(http.MethodGet, pathFiles, "a", nil); w.Code != http.StatusOK || w.Header().Get("X-Request-Id") == "" {
			t.Errorf("a list: %d %v", w.Code, w.Header())
		}
	})
}
