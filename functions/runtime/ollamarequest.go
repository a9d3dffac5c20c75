package runtime

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Request sets the model's name even if the client names none. Ollama ignores the case of fields.
func (r *ollama) Request(path string, body *jsonfield.Object) *api.Error {
	switch raw := body.Bytes(); {
	case len(bytes.TrimSpace(raw)) == 0:
		return nil
	case isForm(raw):
		return r.form(body)
	case body.Err() != nil:
		return api.BadRequest("", "the body is no JSON object: %v", body.Err())
	}
	body.Fold = true
	body.Delete("keep_alive")
	switch path {
	case "/v1/chat/completions":
		limitOf(body)
	case "/v1/completions":
		promptOf(body)
	}
	name := "model"
	raw, found := body.Find(name)
	if none(raw, found) && strings.HasPrefix(path, "/api/") { // the old field, which Ollama's command line sends too
		if old, there := body.Find("name"); there {
			name, raw, found = "name", old, true
		}
	}
	own := r.own.Load()
	if own == nil {
		return nil
	}
	if !none(raw, found) {
		asked, isText := text(raw, found)
		if !isText || asked == own.name {
			return nil
		}
		if refused := r.refuse(asked, own); refused != nil {
			return refused
		}
	}
	body.Set(name, own.json)
	return nil
}

func (r *ollama) refuse(asked string, own *ownName) *api.Error {
	if r.known(strings.TrimSuffix(asked, ":latest")) || canonical(asked) == canonical(own.name) {
		return nil
	}
	return unknownModel(asked, &r.names)
}

// Stream asks for a stream if the client wants none: else Ollama's OpenAI API does not report times.
func (r *ollama) Stream(path string, body *jsonfield.Object) bool {
	body.Fold = true
	if path != "/v1/chat/completions" && path != "/v1/completions" || body.Err() != nil {
		return false
	}
	if raw, found := body.Find("stream"); found && string(raw) != "false" && string(raw) != "null" {
		return false
	}
	if _, found := body.Find("_debug_render_only"); found {
		return false
	}
	body.Set("stream", []byte("true"))
	body.Set("stream_options", []byte(`{"include_usage":true}`))
	return true
}

// form is Request for audio.
func (r *ollama) form(body *jsonfield.Object) (refused *api.Error) {
	own := r.own.Load()
	if own == nil {
		return nil
	}
	body.Replace(setInForm(body.Bytes(), "model", func(asked string) string {
		if refused = r.refuse(asked, own); refused != nil {
			return asked
		}
		return own.name
	}))
	return refused
}

// promptOf unwraps a list of one text, which OpenAI's API allows and Ollama does not.
func promptOf(body *jsonfield.Object) {
	raw, found := body.Find("prompt")
	var list []json.RawMessage
	if !found || !bytes.HasPrefix(raw, []byte{'['}) || json.Unmarshal(raw, &list) != nil || len(list) != 1 {
		return
	}
	if _, isText := text(list[0], true); isText {
		body.Set("prompt", list[0])
	}
}

// limitOf renames max_completion_tokens, which Ollama ignores.
func limitOf(body *jsonfield.Object) {
	if limit, found := body.Find("max_tokens"); !found || string(limit) == "null" {
		body.Rename("max_completion_tokens", "max_tokens")
	}
}
