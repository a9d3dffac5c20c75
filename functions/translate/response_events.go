package translate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rouse-dev/rouse/api"
)

// responseEvents are those of OpenAI's stream of a response. Each has a number.
type responseEvents struct {
	text     *bytes.Buffer
	response response // as the request makes it; once it is begun, as it is
	number   int
	begun    bool
	open     string // the type of the item that is open; empty: none
	id       string // the item's
	said     bytes.Buffer
	scores   []json.RawMessage // of the tokens of the message that is open
	later    []json.RawMessage // of tokens whose text has not come
	call     callItem
	index    int // of the call that is open
	calls    int // that have begun
	finish   string
	usage    usage
}

// chunk implements events.
func (s *responseEvents) chunk(c *completion) *api.Error {
	if !s.begun {
		s.begun = true
		s.response = s.response.begin(c)
		s.event("response.created", map[string]any{"response": s.response})
		s.event("response.in_progress", map[string]any{"response": s.response})
	}
	if c.Usage.Prompt > 0 {
		s.usage = c.Usage
	}
	if len(c.Choices) == 0 {
		return nil
	}
	choice := &c.Choices[0]
	if text := choice.Delta.reasoning(); text != "" {
		s.begin("reasoning")
		s.said.WriteString(text)
		s.event("response.reasoning_text.delta", s.at(map[string]any{"content_index": 0, "delta": text}))
	}
	s.later = append(s.later, tokenScores(choice.Scores)...)
	if text := choice.Delta.Content; text != "" {
		s.begin("message")
		s.said.WriteString(text)
		scores := newOutputText("", s.later).Logprobs
		s.scores, s.later = append(s.scores, scores...), nil
		s.event("response.output_text.delta", s.at(map[string]any{"content_index": 0, "delta": text, "logprobs": scores}))
	}
	for _, call := range choice.Delta.Calls {
		if s.open != "function_call" || call.Index != s.index {
			if call.Index < s.calls {
				return errBack()
			}
			s.shut("completed")
			s.index, s.calls = call.Index, call.Index+1
			s.call = s.response.call("", "in_progress", call.ID, call.Function.Name, "")
			s.begin("function_call")
		}
		if part := call.Function.Arguments; part != "" {
			s.said.WriteString(part)
			s.event("response.function_call_arguments.delta", s.at(map[string]any{"delta": part}))
		}
	}
	if choice.Finish != "" {
		s.finish = choice.Finish
	}
	return nil
}

// at adds where an event belongs.
func (s *responseEvents) at(data map[string]any) map[string]any {
	data["item_id"], data["output_index"] = s.id, len(s.response.Output)
	return data
}

// begin begins an item, unless one of its type is open.
func (s *responseEvents) begin(kind string) {
	if s.open == kind {
		return
	}
	s.shut("completed")
	s.open = kind
	s.said.Reset()
	s.scores = nil
	name := fmt.Sprintf("%s_%d", strings.TrimPrefix(s.response.ID, "resp_"), len(s.response.Output))
	switch kind {
	case "reasoning":
		s.id = "rs_" + name
	case "message":
		s.id = "msg_" + name
	default:
		s.id = "fc_" + name
		s.call.ID = s.id
	}
	s.event("response.output_item.added", map[string]any{"output_index": len(s.response.Output), "item": s.item("in_progress", false)})
	switch kind {
	case "message":
		s.event("response.content_part.added", s.at(map[string]any{"content_index": 0, "part": newOutputText("", nil)}))
	case "reasoning":
		s.event("response.content_part.added", s.at(map[string]any{"content_index": 0, "part": reasoningText{"reasoning_text", ""}}))
	}
}

// item is the one that is open, with what was said or without.
func (s *responseEvents) item(status string, whole bool) any {
	switch s.open {
	case "reasoning":
		content := []reasoningText{}
		if whole {
			content = append(content, reasoningText{"reasoning_text", s.said.String()})
		}
		return reasoningItem{s.id, "reasoning", status, []struct{}{}, content}
	case "message":
		content := []outputText{}
		if whole {
			content = append(content, newOutputText(s.said.String(), s.scores))
		}
		return messageItem{s.id, "message", status, "assistant", content}
	}
	call := s.call
	if call.Status = status; whole {
		call.Arguments = s.said.String()
	}
	return call
}

// shut ends the item that is open.
func (s *responseEvents) shut(status string) {
	text := s.said.String()
	switch s.open {
	case "":
		return
	case "reasoning":
		s.event("response.reasoning_text.done", s.at(map[string]any{"content_index": 0, "text": text}))
		s.event("response.content_part.done", s.at(map[string]any{"content_index": 0, "part": reasoningText{"reasoning_text", text}}))
	case "message":
		s.scores, s.later = append(s.scores, s.later...), nil
		whole := newOutputText(text, s.scores)
		s.event("response.output_text.done", s.at(map[string]any{"content_index": 0, "text": text, "logprobs": whole.Logprobs}))
		s.event("response.content_part.done", s.at(map[string]any{"content_index": 0, "part": whole}))
	default:
		s.event("response.function_call_arguments.done", s.at(map[string]any{"name": s.call.Name, "arguments": text}))
	}
	done := s.item(status, true)
	s.event("response.output_item.done", map[string]any{"output_index": len(s.response.Output), "item": done})
	s.response.Output = append(s.response.Output, done)
	s.open = ""
}

// end implements events. An answer that has not said why it ends was cut.
func (s *responseEvents) end() *api.Error {
	if s.finish == "" {
		return errCut()
	}
	last := s.response.end(s.finish, s.usage)
	if s.open == "" && len(s.response.Output) == 0 {
		s.begin("message") // an answer of nothing has an item too
	}
	s.shut(last.Status)
	last.Output = s.response.Output
	s.event("response."+last.Status, map[string]any{"response": last})
	return nil
}

// fail implements events.
func (s *responseEvents) fail(e *api.Error) {
	s.text.Write(api.StreamResponses.Error(e, s.number))
}

// event writes an event whose data has its type and its number.
func (s *responseEvents) event(kind string, data map[string]any) {
	data["type"], data["sequence_number"] = kind, s.number
	s.number++
	raw, _ := json.Marshal(data) // of our own types and of text that was read
	s.text.WriteString("event: " + kind + "\ndata: ")
	s.text.Write(raw)
	s.text.WriteString("\n\n")
}
