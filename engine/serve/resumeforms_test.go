package serve_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/serve"
)

// TestStreamsGoOnInEveryForm is TestStreamsGoOn for the forms that keep state between two tokens: thoughts, calls, forms
// beside tools, scores of the prompt, stop strings and characters across the cut, and counters of the tokens before.
func TestStreamsGoOnInEveryForm(t *testing.T) {
	const chat, text, stream = "/v1/chat/completions", "/v1/completions", `,"stream":true,"stream_options":{"include_usage":true}`
	calls := `<tool_call>{"name":"look","arguments":{"at":"a"}}</tool_call><tool_call>{"name":"look","arguments":{"at":"ä€"}}</tool_call>`
	schema := `,"response_format":{"type":"json_schema","json_schema":{"name":"s","strict":true,"schema":{"type":"object","properties":{"a":{"type":"integer","maximum":9}},"required":["a"],"additionalProperties":false}}}`
	prompt := func(say, more string) string {
		line, _ := json.Marshal(say + "\n")
		return `{"model":"parrot","prompt":` + string(line) + `,"temperature":0` + stream + more + `}`
	}
	for name, test := range map[string]struct{ path, body string }{
		"thoughts":                  {chat, chatBody("<think>\nhm ä€ hm\n</think>\n\nyes", stream)},
		"thoughts, cut off":         {chat, chatBody("<think>\nhm hm hm hm", stream+`,"max_tokens":14`)},
		"thoughts of the prompt":    {chat, chatBody("<think>\nhm hm</think>\nyes", stream+`,"chat_template_kwargs":{"open":true}`)},
		"thoughts within a budget":  {chat, chatBody("<think>\nhm hm hm hm hm</think>\nyes", stream+`,"thinking_token_budget":6`)},
		"thoughts before a form":    {chat, chatBody("<think>\nhm</think>{}", stream+`,"chat_template_kwargs":{"open":true},"guided_regex":"[{][}]"`)},
		"thoughts before calls":     {chat, chatBody("<think>\nhm</think>\n"+calls, stream+","+weatherTool)},
		"thoughts with scores":      {chat, chatBody("<think>\nhm\n</think>\n\nyes", stream+`,"logprobs":true,"top_logprobs":3`)},
		"calls":                     {chat, chatBody("so "+calls+" and", stream+","+weatherTool)},
		"calls, drawn":              {chat, chatBody(calls, stream+`,"temperature":1,"max_tokens":60,"tool_choice":"required",`+weatherTool)},
		"a call, and no more":       {chat, chatBody(calls, stream+`,"parallel_tool_calls":false,`+weatherTool)},
		"calls of two texts":        {chat, chatBody(calls, stream+`,"n":2,"temperature":0.9,"seed":3,"max_tokens":50,`+weatherTool)},
		"a form beside tools":       {chat, chatBody(`{"a":3}`, stream+`,"temperature":0.9,"max_tokens":60,`+weatherTool+schema)},
		"a call beside a form":      {chat, chatBody(calls, stream+`,"max_tokens":80,`+weatherTool+schema)},
		"bias":                      {chat, chatBody("one two three", stream+`,"temperature":1.3,"ignore_eos":true,"max_tokens":9,"logit_bias":{"40":3,"41":-100,"42":1.5}`)},
		"penalties":                 {chat, chatBody("one one one one", stream+`,"temperature":1.2,"seed":11,"max_tokens":16,"frequency_penalty":1.1,"presence_penalty":-0.7,"repetition_penalty":1.3,"logprobs":true,"top_logprobs":5`)},
		"few tokens to draw from":   {chat, chatBody("one two three", stream+`,"temperature":2,"max_tokens":12,"top_k":7,"top_p":0.9,"min_p":0.01`)},
		"the best":                  {text, prompt("one two", `,"n":2,"best_of":2,"temperature":1,"max_tokens":7`)},
		"stops that nearly come":    {chat, chatBody("abab abac ababab", stream+`,"stop":["ababac","abababa","babac"]`)},
		"a stop at the end":         {chat, chatBody("one two three four", stream+`,"stop":["three fo"],"include_stop_str_in_output":true`)},
		"a stop of bytes":           {chat, chatBody("ä€😀 ñ ö€", stream+`,"stop":["ñ ö"]`)},
		"a stop token":              {chat, chatBody("one two", stream+`,"ignore_eos":true,"max_tokens":12,"temperature":1,"stop_token_ids":[9]`)},
		"characters":                {chat, chatBody("😀😀👩‍👩‍👧 日本語", stream+`,"logprobs":true`)},
		"characters, cut off":       {chat, chatBody("ä€😀 日本語", stream+`,"max_tokens":8`)},
		"characters that are none":  {text, prompt("x", `,"temperature":3,"ignore_eos":true,"max_tokens":24`)},
		"echo with scores":          {text, prompt("say ä this", `,"echo":true,"logprobs":2,"max_tokens":8`)},
		"echo with scores of two":   {text, `{"model":"parrot","prompt":["say this\n","and €\n"],"n":3,"echo":true,"logprobs":1,"temperature":1,"max_tokens":5` + stream + `}`},
		"echo of tokens":            {text, `{"model":"parrot","prompt":[97,98,10],"echo":true,"temperature":1,"max_tokens":5` + stream + `}`},
		"scores of what stops":      {text, prompt("one two three", `,"logprobs":0,"stop":["o th"]`)},
		"the rest of a text":        {chat, `{"messages":[{"role":"user","content":"one two"},{"role":"assistant","content":"one"}],"continue_final_message":true,"temperature":1,"ignore_eos":true,"max_tokens":6` + stream + `}`},
		"names of one salt":         {chat, chatBody("one two three", stream+`,"cache_salt":"a","temperature":1,"ignore_eos":true,"max_tokens":9`)},
		"thoughts of several texts": {chat, chatBody("<think>\nhm\n</think>\n\nyes", stream+`,"n":3,"temperature":0.8,"max_tokens":20`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := toolNames + thinker
			if !strings.Contains(name, "thoughts") {
				template = toolNames + chatML
			}
			goesOn(t, test.path, test.body, func() *client { return startWith(t, serve.Config{ToolParser: "hermes"}, 0, template) })
		})
	}
}
