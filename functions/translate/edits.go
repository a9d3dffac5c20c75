package translate

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

// clearThinking is the edit of a context that leaves out thoughts of earlier answers.
const clearThinking = "clear_thinking_20251015"

// edited takes context_management out of a request and does what it wants of messages. Edits that begin at a number of tokens
// are refused: nothing is counted before a model reads it.
func edited(in object, messages []spoken) error {
	var management struct {
		Edits []struct {
			Type string          `json:"type"`
			Keep json.RawMessage `json:"keep"`
		} `json:"edits"`
	}
	if err := in.take("context_management", &management); err != nil {
		return err
	}
	for i, e := range management.Edits {
		if e.Type != clearThinking {
			return api.BadRequest("context_management", "context_management.edits[%d] is of the type %.40q, which can't be kept: only %s is done here", i, e.Type, clearThinking)
		}
		keep, err := keptTurns(e.Keep)
		if err != nil {
			return api.BadRequest("context_management", "context_management.edits[%d].keep is %.60s: want \"all\" or {\"type\": \"thinking_turns\", \"value\": a number from 1}", i, e.Keep)
		}
		forget(messages, keep)
	}
	return nil
}

// keptTurns is how many answers keep their thoughts. Without a word of it that is the last one.
func keptTurns(keep json.RawMessage) (int, error) {
	keep = bytes.TrimSpace(keep)
	var some struct {
		Type  string  `json:"type"`
		Value float64 `json:"value"`
	}
	switch string(keep) {
	case "", "null":
		return 1, nil
	case `"all"`:
		return math.MaxInt, nil
	}
	if err := json.Unmarshal(keep, &some); err != nil {
		return 0, err
	}
	switch {
	case some.Type == "all":
		return math.MaxInt, nil
	case some.Type != "thinking_turns" || some.Value < 1 || some.Value != math.Trunc(some.Value):
		return 0, api.BadRequest("context_management", "keep")
	}
	return int(min(some.Value, 1<<30)), nil
}

// forget takes the thoughts out of all answers but the last keep that have any.
func forget(messages []spoken, keep int) {
	isThought := func(b block) bool { return b.Type == "thinking" || b.Type == "redacted_thinking" }
	for i := range slices.Backward(messages) {
		m := &messages[i]
		switch {
		case m.Role != "assistant" || !slices.ContainsFunc(m.Content, isThought):
		case keep > 0:
			keep--
		default:
			m.Content = slices.DeleteFunc(m.Content, isThought)
		}
	}
}
