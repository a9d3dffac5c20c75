package proxy

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/api/control"
	"github.com/rouse-dev/rouse/internal/jsonfield"
	"github.com/rouse-dev/rouse/internal/relay"
)

// prepare converts the body for the runtime. Its errors are the client's faults, or that it left.
func (x *exchange) prepare() (*jsonfield.Object, error) {
	read, err := x.cfg.Door.Read(x.w, x.r, Client(x.r))
	if err != nil {
		return nil, err
	}
	x.body = read
	x.report.tells, x.report.learned = x.r.Header[control.HeaderUsage] != nil, &x.Proxy.moved
	if control.KnownState(x.r.Header.Get(control.HeaderState)) && !x.tellsState() && !x.cfg.Inside { // it would begin again
		return nil, api.Errorf(http.StatusBadRequest, api.CodeStreamCut, "the answer was cut, and this runtime does not go on with it: ask again")
	}
	body := read.Bytes()
	kind := x.r.Header.Get("Content-Type")
	if bytes.HasPrefix(body, []byte("\ufeff")) || isText(kind) && bytes.IndexByte(body, 0) >= 0 { // some runtimes read it as JSON all the same
		return nil, api.BadRequest("", "the body has a byte-order mark or a zero byte: send JSON as UTF-8, without them")
	}
	if !isText(kind) {
		if err := form(kind, body); err != nil {
			return nil, err
		}
	} else if err := jsonfield.CheckUTF8(body); err != nil {
		return nil, api.BadRequest("", "%v", err)
	} else if len(body) > 0 && !strings.Contains(kind, "json") {
		x.r.Header.Set("Content-Type", "application/json") // vLLM and SGLang refuse the type that curl -d sends
	}
	if !x.cfg.Inside {
		if err := x.media(body); err != nil {
			return nil, err
		}
	}
	object := read.Object()
	if x.cfg.Adapter != nil {
		x.outcome.Adapter = x.cfg.Adapter(object)
	}
	if err := x.asked(object); err != nil || x.held() {
		return object, err // translated once the adapter is loaded
	}
	return object, x.translate(object)
}

func (x *exchange) held() bool { return x.outcome.Adapter != "" && x.cfg.Hold != nil }

func (x *exchange) translate(body *jsonfield.Object) error {
	if x.cfg.Dialect == nil {
		return nil
	}
	if refused := x.cfg.Dialect.Request(x.r.URL.Path, body); refused != nil {
		return refused
	}
	if s, is := x.cfg.Dialect.(Streamer); is {
		x.joins = s.Stream(x.r.URL.Path, body)
	}
	if !x.joins && !x.cfg.Inside {
		x.report.request(x.cfg.Dialect, x.r.URL.Path, body)
	}
	return nil
}

// form refuses a multipart body that does not begin with its boundary: some parsers read a preamble, and some skip it.
func form(kind string, body []byte) error {
	media, params, err := mime.ParseMediaType(kind)
	if err != nil || !strings.HasPrefix(media, "multipart/") {
		return nil
	}
	if begin := "--" + params["boundary"]; params["boundary"] == "" || !bytes.HasPrefix(body, []byte(begin+"\r\n")) {
		return api.BadRequest("", "the form does not begin with the boundary that its Content-Type names: send it as it was encoded")
	}
	return nil
}

// Client returns who pays for a body: the tenant that the activator names, else the client's address.
func Client(r *http.Request) string {
	if tenant := r.Header.Get(control.HeaderTenant); tenant != "" {
		return tenant
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr) // empty on a Unix socket
	return host
}

// isText reports whether a body may be JSON: curl and others send it with some other types.
func isText(kind string) bool {
	media, _, _ := strings.Cut(kind, ";")
	switch media = strings.ToLower(strings.TrimSpace(media)); media {
	case "", "application/json", "application/x-www-form-urlencoded", "text/plain":
		return true
	}
	return strings.HasSuffix(media, "+json")
}

// Prefixes is how a runtime separates the cached prompts of different clients.
type Prefixes int

const (
	// PrefixesAsTheyAre: the runtime can't, or all clients are to share.
	PrefixesAsTheyAre Prefixes = iota
	// PrefixesSalted: by vLLM's field cache_salt.
	PrefixesSalted
	// PrefixesForgotten: llama-server reuses nothing of a request whose field cache_prompt is false.
	PrefixesForgotten
)

// asked applies the client's identity to the body. It refuses bodies that JSON parsers read differently: the router may have read another
// one.
func (x *exchange) asked(body *jsonfield.Object) error {
	watch := jsonfield.Watch{Names: jsonfield.Read}
	for name := range body.Fields { // the runtime refuses anything but an object
		if err := watch.See(name); err != nil {
			return api.BadRequest("", "%v", err)
		}
	}
	if watch.Saw("priority") && !x.cfg.Inside && x.r.Header[control.HeaderTrusted] == nil {
		body.Delete("priority")
	}
	x.salt(body)
	return nil
}

func (x *exchange) salt(body *jsonfield.Object) {
	tenant := x.r.Header.Get(control.HeaderTenant)
	if tenant == "" || !x.path.Prompts {
		return
	}
	switch x.cfg.Prefixes {
	case PrefixesSalted:
		own, found := body.Find("cache_salt")
		if !found || own[0] == '"' && len(own) != 2 { // else the runtime says what is wrong with it
			body.Set("cache_salt", saltOf(tenant, own))
		}
	case PrefixesForgotten:
		body.Set("cache_prompt", []byte("false"))
	}
}

// saltOf returns a salt, as a JSON string, that no other tenant's requests have, whatever salt a client adds.
func saltOf(tenant string, own []byte) []byte {
	sum := sha256.Sum256(append(append([]byte(tenant), 0), own...))
	return append(base64.RawURLEncoding.AppendEncode([]byte{'"'}, sum[:16]), '"')
}

// tellsState reports whether the runtime can continue another instance's stream, and the request comes from the activator directly.
func (x *exchange) tellsState() bool {
	return (x.cfg.Tenants || x.cfg.States) && !x.cfg.Inside
}

func (x *exchange) private(h http.Header) {
	for name := range h {
		switch {
		case (name == control.HeaderTenant || name == control.HeaderUsage) && x.cfg.Tenants:
		case name == control.HeaderState && x.tellsState():
		case control.Reserved(name), !x.cfg.Everything && control.Forwarded(name), !x.cfg.Credentials && control.Credential(name):
			delete(h, name)
		}
	}
}

// Model servers fetch URLs in mediaFields, of OpenAI's, Anthropic's (source), Ollama's, vLLM's or SGLang's API; SGLang opens paths.
var mediaFields = strings.Fields("image_url audio_url video_url file_url image_data audio_data video_data image audio video images audios videos input_audio file_data source")

// besides are top-level fields that no server searches for media.
var besides = strings.Fields("tools metadata response_format")

// media refuses a body that would make the runtime fetch or open something, except URLs at the function's media hosts.
func (x *exchange) media(body []byte) error {
	if media, params, err := mime.ParseMediaType(x.r.Header.Get("Content-Type")); err == nil && strings.HasPrefix(media, "multipart/") {
		return x.mediaForm(multipart.NewReader(bytes.NewReader(body), params["boundary"]))
	}
	if begin := bytes.TrimLeft(body, " \t\r\n"); len(begin) == 0 || begin[0] != '{' && begin[0] != '[' {
		return nil
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

// Uploaded files are data and may pass.
func (x *exchange) mediaForm(r *multipart.Reader) error {
	for {
		part, err := relay.FormPart(r)
		if err == io.EOF {
			return nil
		}
		var text []byte
		if err == nil && part.FileName() == "" {
			text, err = io.ReadAll(part)
		}
		if err != nil {
			return api.BadRequest("", "the form can't be read: %v", err)
		}
		name, _, _ := strings.Cut(part.FormName(), "[")
		if text == nil || name != "url" && !slices.Contains(mediaFields, name) {
			continue
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

// field is the media field that the next value belongs to, or "".
func (m *mediaReader) value(field string, depth int) error {
	token, err := m.in.ReadToken()
	if err != nil {
		return err
	}
	kind := token.Kind()
	switch kind {
	case '"':
		if field != "" && field != "source" {
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
