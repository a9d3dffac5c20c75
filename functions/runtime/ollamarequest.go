package runtime

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Request takes out keep_alive, gives the limit of tokens the name that Ollama
// reads, and its own name to the model, also where a client names none. Ollama reads fields without regard to case
// and ignores what stands behind the object: nothing may hide there.
func (r *ollama) Request(path string, body []byte) ([]byte, *api.Error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return body, nil
	}
	if isForm(body) {
		return r.form(body)
	}
	if err := jsonfield.Check(body); err != nil {
		return nil, api.BadRequest("", "the body is no JSON object: %v", err)
	}
	body = jsonfield.DeleteFold(body, "keep_alive")
	switch path {
	case "/v1/chat/completions":
		body = limitOf(body)
	case "/v1/completions":
		body = promptOf(body)
	}
	name := "model"
	raw, found := jsonfield.FindFold(body, name)
	if none(raw, found) && strings.HasPrefix(path, "/api/") { // Ollama's own API takes an old field too, and its command line writes both
		if old, there := jsonfield.FindFold(body, "name"); there {
			name, raw, found = "name", old, true
		}
	}
	own := r.own.Load()
	if own != nil && none(raw, found) {
		return jsonfield.SetFold(body, name, own.json), nil
	}
	asked, isText := text(raw, found)
	if !isText || own == nil || asked == own.name {
		return body, nil
	}
	if !r.known(strings.TrimSuffix(asked, ":latest")) && canonical(asked) != canonical(own.name) {
		return nil, unknownModel(asked, &r.names)
	}
	return jsonfield.SetFold(body, name, own.json), nil
}

// Stream asks for a stream where the client wants none: of an answer without one, by OpenAI's API, Ollama does
// not tell when its first token came, nor how long it generated.
func (r *ollama) Stream(path string, body []byte) ([]byte, bool) {
	if path != "/v1/chat/completions" && path != "/v1/completions" || jsonfield.Check(body) != nil {
		return nil, false
	}
	if raw, found := jsonfield.FindFold(body, "stream"); found && string(raw) != "false" && string(raw) != "null" {
		return nil, false
	}
	if _, found := jsonfield.FindFold(body, "_debug_render_only"); found {
		return nil, false
	}
	body = jsonfield.SetFold(body, "stream", []byte("true"))
	return jsonfield.SetFold(body, "stream_options", []byte(`{"include_usage":true}`)), true
}

// form is Request for a multipart form, as audio comes in: the field "model" is renamed.
func (r *ollama) form(body []byte) ([]byte, *api.Error) {
	own := r.own.Load()
	var refused *api.Error
	body = setInForm(body, "model", func(asked string) string {
		switch {
		case own == nil || asked == own.name:
			return asked
		case !r.known(strings.TrimSuffix(asked, ":latest")) && canonical(asked) != canonical(own.name):
			refused = unknownModel(asked, &r.names)
			return asked
		}
		return own.name
	})
	return body, refused
}

// promptOf makes a prompt that is a list of one text, as OpenAI's API has it too, that text: Ollama takes
// nothing else.
func promptOf(body []byte) []byte {
	raw, found := jsonfield.FindFold(body, "prompt")
	var list []json.RawMessage
	if !found || !bytes.HasPrefix(raw, []byte{'['}) || json.Unmarshal(raw, &list) != nil || len(list) != 1 {
		return body
	}
	if _, isText := text(list[0], true); !isText {
		return body
	}
	return jsonfield.SetFold(body, "prompt", list[0])
}

// limitOf gives max_completion_tokens, which Ollama ignores, the older name, unless
// that is there too.
func limitOf(body []byte) []byte {
	if limit, found := jsonfield.FindFold(body, "max_tokens"); found && string(limit) != "null" {
		return body
	}
	return jsonfield.RenameFold(body, "max_completion_tokens", "max_tokens")
}
