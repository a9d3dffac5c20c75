package runtime

import (
	"bytes"

	"github.com/rouse-dev/rouse/internal/jsonfield"
	"github.com/rouse-dev/rouse/internal/relay"
)

// Report asks for the usage of a stream, at its end and with each chunk.
func (r *engine) Report(path string, body *jsonfield.Object) relay.Asked {
	asked := reportUsage(path, body, true, false)
	if !asked.Chunk {
		asked.Null = func([]byte) bool { return true }
	}
	return asked
}

// Report does as for the engine. vLLM puts its fingerprint into the last chunk, which is the one with the usage if that is asked for.
func (r *vllm) Report(path string, body *jsonfield.Object) relay.Asked {
	if has(r.cfg.Spec.Args, "--enable-force-include-usage") { // all clients get it
		return relay.Asked{}
	}
	asked := reportUsage(path, body, true, false)
	asked.Moves = "system_fingerprint"
	return asked
}

// Report does as for the engine. SGLang reports the usage with each chunk even without one at the end. Its chat chunks with text omit
// empty fields; all others write null.
func (r *sglang) Report(path string, body *jsonfield.Object) relay.Asked {
	before, _ := body.Find("stream_options")
	asked := reportUsage(path, body, true, has(r.cfg.Spec.Args, "--stream-response-default-include-usage"))
	if all, _ := jsonfield.Find(before, withEach); string(all) == "true" {
		asked.Field = ""
	}
	asked.Null = func(chunk []byte) bool {
		return !bytes.Contains(chunk, []byte(`"delta"`)) || bytes.Contains(chunk, []byte(`"tool_calls"`))
	}
	return asked
}

// Report asks for the usage at the end; a server's other abilities are unknown.
func (s *server) Report(path string, body *jsonfield.Object) relay.Asked {
	return reportUsage(path, body, false, false)
}

// Report asks for the usage at the end; Ollama has no more. Then each chunk of a completion has an empty usage.
func (r *ollama) Report(path string, body *jsonfield.Object) relay.Asked {
	if body.Err() != nil {
		return relay.Asked{}
	}
	asked := reportUsage(path, body, false, false)
	if path == "/v1/completions" && asked.Chunk {
		asked.Field = "usage"
	}
	return asked
}

// Report asks for timings with each chunk, which have the tokens; by default only the last chunk has them.
func (r *llamaCpp) Report(path string, body *jsonfield.Object) relay.Asked {
	switch path {
	case "/v1/chat/completions", "/v1/completions", "/v1/responses", "/completion", "/infill":
	default:
		return relay.Asked{}
	}
	const name = "timings_per_token"
	stream, _ := body.Find("stream")
	own, _ := body.Find(name)
	if string(stream) != "true" || own != nil && string(own) != "false" && string(own) != "null" {
		return relay.Asked{}
	}
	body.Set(name, []byte("true"))
	return relay.Asked{Field: "timings"}
}

// Options of a stream.
const (
	atEnd    = "include_usage"
	withEach = "continuous_usage_stats"
)

// reportUsage asks for the usage of a stream of OpenAI's API. If each is true it is reported with each chunk, as vLLM and SGLang can.
// always says that the server reports it at the end unasked.
func reportUsage(path string, body *jsonfield.Object, each, always bool) (asked relay.Asked) {
	stream, _ := body.Find("stream")
	if path != "/v1/chat/completions" && path != "/v1/completions" || string(stream) != "true" {
		return relay.Asked{}
	}
	options, found := body.Find("stream_options")
	if !found || string(options) == "null" {
		options = []byte("{}")
	}
	o := jsonfield.Open(options)
	end, known := switched(o, atEnd)
	all, known2 := switched(o, withEach)
	if o.Err() != nil || !known || !known2 {
		return relay.Asked{} // the server refuses it
	}
	end = end || always
	asked.Chunk = !end
	o.Set(atEnd, []byte("true"))
	if each {
		o.Set(withEach, []byte("true"))
	}
	if each && !all || all && !end {
		asked.Field = "usage"
	}
	body.Set("stream_options", o.Bytes())
	return asked
}

// switched returns a field that is true, false or null; known is false for any other value.
func switched(options *jsonfield.Object, name string) (on, known bool) {
	v, found := options.Find(name)
	return string(v) == "true", !found || string(v) == "true" || string(v) == "false" || string(v) == "null"
}
