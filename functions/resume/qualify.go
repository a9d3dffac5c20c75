package resume

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/internal/jsonfield"
)

const (
	pathChat = "/v1/chat/completions"
	pathText = "/v1/completions"
)

type asked struct {
	chat  bool
	model string
	usage bool
	least int
	most  int // max_tokens; -1: the request has none
	rest  map[string]json.RawMessage
}

// kind says how a request's field affects continuing the stream.
type kind int

const (
	unknown kind = iota // with a value, the stream can't be continued
	prompt              // affects only the prompt, whose tokens are known, or nothing
	goes                // both paths have it, with the same meaning from any token on
	own                 // see qualify
	zero                // only with a neutral value
)

var fields = named(map[kind]string{
	own: `model stream stream_options max_tokens max_completion_tokens min_tokens messages prompt n best_of seed temperature tools
		tool_choice response_format`,
	goes: `top_p top_k min_p repetition_penalty ignore_eos stop_token_ids include_stop_str_in_output skip_special_tokens
		spaces_between_special_tokens logit_bias allowed_token_ids priority user cache_salt stream_interval`,
	zero: `functions presence_penalty frequency_penalty logprobs top_logprobs echo suffix stop use_beam_search return_token_ids
		return_tokens_as_token_ids bad_words continue_final_message`,
	prompt: `add_generation_prompt add_special_tokens chat_template chat_template_kwargs documents reasoning_effort parallel_tool_calls
		metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention request_id length_penalty`,
})

func named(texts map[kind]string) map[string]kind {
	all := map[string]kind{}
	for k, text := range texts {
		for name := range strings.FieldsSeq(text) {
			all[name] = k
		}
	}
	return all
}

// qualify decides whether the stream of a request can be continued exactly; why says why not:
//
//  1. It must be a stream of one text, and of text alone.
//  2. Nothing may parse the answer: no tool may be called.
//  3. A token must depend only on those before it: no penalty that counts only the answer, no grammar, and no seed, except for greedy
//     sampling.
//  4. Only incomplete characters may be held back, and only text may be reported of tokens.
//  5. All other fields must have the same meaning for a prompt of IDs.
func qualify(path string, body []byte) (a *asked, why string) {
	all := map[string]json.RawMessage{}
	if json.Unmarshal(body, &all) != nil || string(all["stream"]) != "true" {
		return nil, "it is no stream"
	}
	a = &asked{chat: path == pathChat, most: -1, rest: map[string]json.RawMessage{}}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := all[name]
		if string(value) == "null" {
			continue
		}
		switch fields[name] {
		case prompt:
		case own:
			if !a.takes(name, value, all) {
				return nil, "this value of the field " + name + " does not allow that"
			}
		case goes:
			a.rest[name] = value
		case zero:
			if !slices.Contains([]string{"false", "0", "0.0", `""`, "[]"}, string(value)) {
				return nil, "the field " + name + " does not allow that"
			}
		case unknown:
			return nil, "the field " + fmt.Sprintf("%.60q", name) + " does not allow that"
		}
	}
	if !a.chat && a.most < 0 {
		a.most = 16 // the API's default
	}
	return a, ""
}

// takes handles a field with a rule of its own, and reports whether the stream can be continued with it.
func (a *asked) takes(name string, value json.RawMessage, all map[string]json.RawMessage) bool {
	switch name {
	case "model":
		return json.Unmarshal(value, &a.model) == nil
	case "n", "best_of":
		return string(value) == "1"
	case "max_completion_tokens":
		return a.chat && json.Unmarshal(value, &a.most) == nil && a.most > 0
	case "max_tokens":
		if other := string(all["max_completion_tokens"]); a.chat && other != "" && other != "null" {
			return true
		}
		return json.Unmarshal(value, &a.most) == nil && a.most > 0
	case "min_tokens":
		return json.Unmarshal(value, &a.least) == nil && a.least >= 0
	case "seed":
		var drawn *float64
		return json.Unmarshal(all["temperature"], &drawn) == nil && drawn != nil && *drawn == 0
	case "temperature":
		a.rest[name] = value
	case "response_format":
		kind, _ := jsonfield.Find(value, "type")
		return string(kind) == `"text"`
	case "tools":
		return string(value) == "[]" || string(all["tool_choice"]) == `"none"`
	case "tool_choice":
		return string(value) == `"none"` || string(value) == `"auto"` && len(all["tools"]) == 0
	case "stream_options":
		return a.options(value)
	case "messages":
		return a.chat && textOnly(value)
	case "prompt":
		return !a.chat && onePrompt(value)
	}
	return true
}

func (a *asked) options(value json.RawMessage) bool {
	var o map[string]bool
	if json.Unmarshal(value, &o) != nil {
		return false
	}
	for name := range o {
		if name != "include_usage" && name != "continuous_usage_stats" && name != "include_obfuscation" {
			return false
		}
	}
	a.usage, a.rest["stream_options"] = o["include_usage"], value
	return true
}

func textOnly(messages json.RawMessage) bool {
	var list []struct {
		Content json.RawMessage
		Audio   json.RawMessage
	}
	if json.Unmarshal(messages, &list) != nil {
		return false
	}
	for _, m := range list {
		var parts []struct{ Type string }
		if len(m.Audio) > 0 {
			return false
		}
		if len(m.Content) == 0 || m.Content[0] != '[' {
			continue
		}
		if json.Unmarshal(m.Content, &parts) != nil || slices.ContainsFunc(parts, func(p struct{ Type string }) bool { return p.Type != "text" }) {
			return false
		}
	}
	return true
}

// onePrompt reports whether there is exactly one prompt: a string, its tokens, or a list with one of either.
func onePrompt(value json.RawMessage) bool {
	var text string
	var tokens []int64
	if json.Unmarshal(value, &text) == nil || json.Unmarshal(value, &tokens) == nil && len(tokens) > 0 {
		return true
	}
	var list []json.RawMessage
	return json.Unmarshal(value, &list) == nil && len(list) == 1 && !strings.HasPrefix(string(list[0]), "{")
}
