package proxy

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rouse-dev/rouse/api"
)

// mediaFields have an image, a sound, a video or a file in some API: OpenAI's chat completions and responses, Anthropic's messages in
// source, Ollama's, vLLM's and SGLang's own. The value is a string, a list of strings, or an object with the field url. Model servers
// fetch URLs there, and SGLang opens paths.
var mediaFields = strings.Fields("image_url audio_url video_url file_url image_data audio_data video_data image audio video images audios videos input_audio file_data source")

// besides are top-level fields that no server searches for media.
var besides = strings.Fields("tools metadata response_format")

// media refuses a body that would make the runtime fetch or open something, except URLs at the function's media hosts.
func (x *exchange) media(body []byte) error {
	if media, params, err := mime.ParseMediaType(x.r.Header.Get("Content-Type")); err == nil && strings.HasPrefix(media, "multipart/") {
		return x.mediaForm(multipart.NewReader(bytes.NewReader(body), params["boundary"]))
	}
	if begin := bytes.TrimLeft(body, " \t\r\n"); len(begin) == 0 || begin[0] != '{' && begin[0] != '[' {
		return nil // no object, whatever its type says
	}
	if !slices.ContainsFunc([]string{"mage", "udio", "ideo", "ource", "file_", `\u`}, func(s string) bool { return bytes.Contains(body, []byte(s)) }) {
		return nil
	}
	m := &mediaReader{hosts: x.cfg.MediaHosts, in: jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
	err := m.value("", 0)
	switch {
	case m.refused != nil:
		return m.refused
	case err != nil: // some servers accept invalid JSON
		return api.BadRequest("", "the body is not valid JSON, so whether it names media can't be told: %v", err)
	}
	return nil
}

// mediaForm is [exchange.media] for a multipart form. Uploaded files are data and may pass.
func (x *exchange) mediaForm(r *multipart.Reader) error {
	for {
		part, err := r.NextRawPart()
		if err != nil {
			return nil // at its end, or the runtime reports the error
		}
		name, _, _ := strings.Cut(part.FormName(), "[")
		if part.FileName() != "" || name != "url" && !slices.Contains(mediaFields, name) {
			continue
		}
		text, err := io.ReadAll(part)
		if err != nil {
			return nil
		}
		if refused := checkMedia(string(text), name, x.cfg.MediaHosts); refused != nil {
			return refused
		}
	}
}

type mediaReader struct {
	in      *jsontext.Decoder
	hosts   []string
	refused *api.Error
}

// value checks the next value, at a depth. field is the media field that it belongs to, or "".
func (m *mediaReader) value(field string, depth int) error {
	token, err := m.in.ReadToken()
	if err != nil {
		return err
	}
	kind := token.Kind()
	switch kind {
	case '"':
		if field != "" && field != "source" { // source may be a client's own text field
			m.refused = checkMedia(token.String(), field, m.hosts)
		}
		return nil
	case '[', '{':
	default:
		return nil
	}
	for m.refused == nil && m.in.PeekKind() != kind+2 { // ] and } are two above [ and {
		below := field
		if kind == '{' {
			name, err := m.in.ReadToken()
			if err != nil {
				return err
			}
			switch below = name.String(); {
			case field != "" && (below == "url" || below == "uri") || field == "input_audio" && below == "data":
				below = "image_url"
			case depth == 0 && slices.Contains(besides, below):
				if err := m.in.SkipValue(); err != nil {
					return err
				}
				continue
			case !slices.Contains(mediaFields, below):
				below = ""
			}
		}
		if err := m.value(below, depth+1); err != nil {
			return err
		}
	}
	if m.refused != nil {
		return nil
	}
	_, err = m.in.ReadToken()
	return err
}

// checkMedia allows only inline data (a data: URL or base64) and URLs at the hosts.
func checkMedia(text, field string, hosts []string) *api.Error {
	const base64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_\r\n"
	scheme, rest, isURL := strings.Cut(text, "://")
	switch {
	case len(text) >= 5 && strings.EqualFold(text[:5], "data:"):
		return nil
	case strings.Trim(text, base64) == "" && (!strings.HasPrefix(text, "/") || strings.HasPrefix(text, "/9j/")): // the base64 of a JPEG begins with /9j/
		return nil
	case isURL && (scheme == "https" || scheme == "http"):
		host := rest
		if end := strings.IndexAny(rest, "/?#"); end >= 0 {
			host = rest[:end]
		}
		if slices.Contains(hosts, strings.ToLower(host)) && !strings.ContainsAny(text, "\\\t\r\n") {
			return nil
		}
	}
	have := "no host"
	if len(hosts) > 0 {
		have = "only " + strings.Join(hosts, ", ")
	}
	return &api.Error{Status: http.StatusBadRequest, Param: field, Message: "this function fetches media from " + have + ": send " + field +
		" as a data: URL (data:image/png;base64,…), or have whoever declares the function name the host (rouse.dev/media-hosts)"}
}
