package translate

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// emptyResponse has a response's fields in their order, with their default values.
const emptyResponse = `{"id":"","object":"response","created_at":0,"completed_at":null,"status":"in_progress","background":false,"error":null,"incomplete_details":null,` +
	`"instructions":null,"max_output_tokens":null,"model":"","output":[],"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},` +
	`"store":false,"temperature":1,"text":{},"tool_choice":"auto","tools":[],"top_p":1,"truncation":"disabled","usage":null,"user":null,"metadata":{},"top_logprobs":0,` +
	`"presence_penalty":0,"frequency_penalty":0,"max_tool_calls":null,"prompt_cache_key":null,"safety_identifier":null,"service_tier":"default"}`

type response struct {
	fields *jsonfield.Object
	spaces map[string]called // functions by their names in a chat completion
	id     string            // without prefix
	output []outputItem
}

func newResponse(in *request) *response {
	r := &response{fields: jsonfield.Open([]byte(emptyResponse)), spaces: map[string]called{}, output: []outputItem{}}
	for name := range strings.FieldsSeq("instructions max_output_tokens parallel_tool_calls reasoning temperature tool_choice top_p user metadata " +
		"top_logprobs presence_penalty frequency_penalty max_tool_calls prompt_cache_key safety_identifier") {
		if in.has(name) {
			r.set(name, in.object[name])
		}
	}
	text := object{}
	_ = json.Unmarshal(in.object["text"], &text) // other values are refused later
	if text == nil {
		text = object{}
	}
	if !text.has("format") {
		text.put("format", map[string]string{"type": "text"})
	}
	r.set("text", text)
	var tools []object
	if json.Unmarshal(in.object["tools"], &tools) != nil || tools == nil {
		return r
	}
	for _, t := range tools {
		if string(t["type"]) != `"function"` {
			continue
		}
		for name, none := range map[string]string{"strict": "false", "parameters": "{}", "description": "null"} {
			if !t.has(name) {
				t[name] = json.RawMessage(none)
			}
		}
	}
	r.set("tools", tools)
	return r
}

func (r *response) set(name string, v any) {
	raw, _ := json.Marshal(v) // can't fail
	r.fields.Set(name, raw)
}

func (r *response) body() json.RawMessage { return r.fields.Bytes() }

// begin takes the runtime's time, which stays if another instance continues the stream.
func (r *response) begin(c *completion) {
	r.id = strings.TrimPrefix(c.ID, "chatcmpl-")
	if c.Created == 0 {
		c.Created = time.Now().Unix()
	}
	r.set("id", "resp_"+r.id)
	r.set("model", c.Model)
	r.set("created_at", c.Created)
}

func (r *response) end(finish string, u usage) (status string) {
	reason := map[string]string{"length": "max_output_tokens", "content_filter": "content_filter"}[finish]
	if reason != "" {
		status = "incomplete"
		r.set("incomplete_details", map[string]string{"reason": reason})
	} else {
		status = "completed"
		r.set("completed_at", time.Now().Unix())
	}
	r.set("status", status)
	r.fields.Set("usage", fmt.Appendf(nil, `{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":0},"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}`,
		u.Prompt, u.Details.Cached, u.Completion, u.Output.Reasoning, u.Prompt+u.Completion))
	return status
}

func (r *response) whole(c *completion) any {
	choice := &c.Choices[0]
	r.begin(c)
	status := r.end(choice.Finish, c.Usage)
	if thoughts := choice.Message.reasoning(); thoughts != "" {
		r.output = append(r.output, newItem(kindThoughts, r.id, "completed", nil, newPart(kindThoughts, thoughts, nil)))
	}
	if text := choice.Message.Content; text != "" || len(choice.Message.Calls) == 0 {
		r.output = append(r.output, newItem(kindText, r.id, status, nil, newPart(kindText, text, choice.Scores)))
	}
	for i := range choice.Message.Calls {
		c := &choice.Message.Calls[i]
		r.output = append(r.output, newItem(kindCall, c.ID, status, r.newCall(c, c.Function.Arguments)))
	}
	r.set("output", r.output)
	return r.body()
}

type outputItem struct {
	ID      string       `json:"id"`
	Type    string       `json:"type"`
	Status  string       `json:"status"`
	Role    string       `json:"role,omitempty"`
	Summary []struct{}   `json:"summary,omitzero"`
	Content []outputPart `json:"content,omitzero"`
	*outputCall
}

type outputCall struct {
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Arguments string `json:"arguments"`
}

type outputPart struct {
	Type        string     `json:"type"`
	Text        string     `json:"text"`
	Annotations []struct{} `json:"annotations,omitzero"`
	Logprobs    scores     `json:"logprobs,omitzero"`
}

// itemKinds has the prefix of items' identifiers, and their parts' type.
var itemKinds = map[string]struct{ prefix, part string }{
	kindThoughts: {"rs_", "reasoning_text"}, kindText: {"msg_", "output_text"}, kindCall: {"fc_", "function_call_arguments"},
}

// newItem takes an id without prefix, and either call or content.
func newItem(kind, id, status string, call *outputCall, content ...outputPart) outputItem {
	i := outputItem{ID: itemKinds[kind].prefix + id, Type: kind, Status: status, outputCall: call}
	if call == nil {
		i.Content = append([]outputPart{}, content...)
	}
	switch kind {
	case kindThoughts:
		i.Summary = []struct{}{}
	case kindText:
		i.Role = "assistant"
	}
	return i
}

func newPart(kind, text string, s scores) outputPart {
	p := outputPart{Type: itemKinds[kind].part, Text: text}
	if kind == kindText {
		p.Annotations, p.Logprobs = []struct{}{}, append(scores{}, s...)
	}
	return p
}

func (r *response) newCall(c *call, arguments string) *outputCall {
	f, found := r.spaces[c.Function.Name]
	if !found {
		f.Name = c.Function.Name
	}
	return &outputCall{CallID: c.ID, Name: f.Name, Namespace: f.Namespace, Arguments: arguments}
}

type responseEvents struct {
	blocks
	response *response
	id       string // of the open block's item, without prefix
	call     *outputCall
	said     strings.Builder
	told     scores // scores of the open message that were sent
}

func newResponseEvents(out *output, r *response) *responseEvents {
	s := &responseEvents{blocks: blocks{out: out}, response: r}
	s.to = s
	return s
}

func (s *responseEvents) beginAnswer(c *completion) {
	s.response.begin(c)
	s.event("created", map[string]any{"response": s.response.body()})
	s.event("in_progress", map[string]any{"response": s.response.body()})
}

func (s *responseEvents) openBlock(c *call) {
	s.said.Reset()
	s.id, s.call, s.told = fmt.Sprintf("%s_%d", s.response.id, len(s.response.output)), nil, nil
	if c != nil {
		s.call = s.response.newCall(c, "")
	}
	s.itemEvent("added", newItem(s.kind, s.id, "in_progress", s.call))
	if c == nil {
		s.partEvent("content_part.added", map[string]any{"part": newPart(s.kind, "", nil)})
	}
}

func (s *responseEvents) addPart(part string) {
	s.said.WriteString(part)
	data := map[string]any{"delta": part}
	if s.kind == kindText {
		data["logprobs"] = s.takeScores()
	}
	s.partEvent(itemKinds[s.kind].part+".delta", data)
}

func (s *responseEvents) takeScores() scores {
	taken := append(scores{}, s.scores...)
	s.told, s.scores = append(s.told, taken...), nil
	return taken
}

func (s *responseEvents) closeBlock(status string) {
	text := s.said.String()
	if s.kind == kindText {
		s.takeScores()
	}
	part := newPart(s.kind, text, s.told)
	data := map[string]any{"text": text}
	switch s.kind {
	case kindCall:
		s.call.Arguments = text
		data = map[string]any{"name": s.call.Name, "arguments": text}
	case kindText:
		data["logprobs"] = part.Logprobs
	}
	s.partEvent(itemKinds[s.kind].part+".done", data)
	if s.kind != kindCall {
		s.partEvent("content_part.done", map[string]any{"part": part})
	}
	done := newItem(s.kind, s.id, status, s.call, part)
	s.itemEvent("done", done)
	s.response.output = append(s.response.output, done)
}

func (s *responseEvents) end(e ending) {
	status := s.response.end(e.finish, e.usage)
	if s.kind == "" && len(s.response.output) == 0 {
		s.open(kindText, nil) // an empty answer has an item too
	}
	s.closeOpen(status)
	s.response.set("output", s.response.output)
	s.event(status, map[string]any{"response": s.response.body()})
}

func (s *responseEvents) itemEvent(kind string, item outputItem) {
	s.event("output_item."+kind, map[string]any{"output_index": len(s.response.output), "item": item})
}

func (s *responseEvents) partEvent(kind string, data map[string]any) {
	data["item_id"], data["output_index"] = itemKinds[s.kind].prefix+s.id, len(s.response.output)
	if s.kind != kindCall {
		data["content_index"] = 0
	}
	s.event(kind, data)
}

func (s *responseEvents) event(kind string, data map[string]any) {
	data["sequence_number"] = s.out.number
	s.out.event("response."+kind, data)
}
