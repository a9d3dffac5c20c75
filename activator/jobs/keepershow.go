package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

func unavailable() *api.Error {
	return api.Errorf(http.StatusServiceUnavailable, "storage_unavailable", "%v: try again", store.ErrUnavailable).WithRetryAfter(retry)
}

const retry = 5 * time.Second

// Show answers with a response that has ended. If it returns an error, it has written nothing; store.ErrNotFound: it was
// just deleted.
func (k *keeper) Show(w http.ResponseWriter, kept store.Job) error {
	_, answer, err := k.store.ReadResponse(kept)
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, json.RawMessage(answer))
	return nil
}

// As at OpenAI.
const (
	usualItems = 20
	mostItems  = 100
)

type itemPage struct {
	Object string            `json:"object"`
	Data   []json.RawMessage `json:"data"`
	First  string            `json:"first_id"`
	Last   string            `json:"last_id"`
	More   bool              `json:"has_more"`
}

// Oldest reports whether a client asks for a list with the oldest first.
func Oldest(v url.Values) (bool, error) {
	switch order := v.Get("order"); order {
	case "", "desc":
		return false, nil
	case "asc":
		return true, nil
	default:
		return false, api.BadRequest("order", "order is %.40q: want asc or desc", order)
	}
}

// Items answers with a response's input and the conversation before it, as far as that still exists. If it returns an
// error, it has written nothing.
func (k *keeper) Items(w http.ResponseWriter, r *http.Request, owner, id string) error {
	q, err := query(r.URL.Query(), usualItems, mostItems)
	if err != nil {
		return err
	}
	if !store.IsResponse(id) {
		return store.ErrNotFound
	}
	ids, items, err := k.itemsOf(owner, id, false)
	if err != nil {
		return err
	}
	return writeItems(w, q, ids, items)
}

func writeItems(w http.ResponseWriter, q store.Query, ids []string, items []json.RawMessage) error {
	if !q.Oldest {
		slices.Reverse(ids)
		slices.Reverse(items)
	}
	from := 0
	if q.After != "" {
		if from = slices.Index(ids, q.After) + 1; from == 0 {
			return api.BadRequest("after", "there is no item %.80q to go on after", q.After)
		}
	}
	until := min(from+q.Limit, len(ids))
	p := itemPage{Object: "list", Data: append([]json.RawMessage{}, items[from:until]...), More: until < len(ids)}
	if from < until {
		p.First, p.Last = ids[from], ids[until-1]
	}
	api.WriteJSON(w, http.StatusOK, p)
	return nil
}

// itemsOf returns the items of a response's input, and of its output if withOutput, with their ids, the oldest first.
func (k *keeper) itemsOf(owner, id string, withOutput bool) (ids []string, items []json.RawMessage, err error) {
	turns, err := k.turns(owner, id)
	if err != nil && (!errors.Is(err, store.ErrNotFound) || len(turns) == 0) {
		return nil, nil, err
	}
	seen := map[string]bool{}
	for n, t := range turns {
		input, answer, err := k.store.ReadResponse(t)
		if errors.Is(err, store.ErrNotFound) && n < len(turns)-1 {
			ids, items, seen = nil, nil, map[string]bool{} // it was just deleted
			continue
		} else if err != nil {
			return nil, nil, err
		}
		parts := [][]byte{input}
		if output, found := jsonfield.Find(answer, "output"); found && (withOutput || n < len(turns)-1) {
			parts = append(parts, output)
		}
		theirs, all, err := namedItems(t.ID, seen, parts...)
		if err != nil {
			return nil, nil, err
		}
		ids, items = append(ids, theirs...), append(items, all...)
	}
	return ids, items, nil
}

// namedItems returns the items of a turn's parts with ids that are not in seen, and adds them there.
func namedItems(turn string, seen map[string]bool, parts ...[]byte) (ids []string, items []json.RawMessage, err error) {
	_, name, _ := strings.Cut(turn, "_")
	for _, part := range parts {
		if err := jsonfield.Items(part, func(item []byte) bool {
			own := fmt.Sprintf("%s_%d", name, len(ids))
			id, said := listItem(item, own)
			if seen[id] { // the client has repeated it
				id = "item_" + own
				said = jsonfield.Set(said, "id", []byte(`"`+id+`"`))
			}
			seen[id] = true
			ids, items = append(ids, id), append(items, said)
			return true
		}); err != nil {
			return nil, nil, err
		}
	}
	return ids, items, nil
}

// listItem completes an item: with its type, an id, and content in parts.
func listItem(item []byte, name string) (id string, said []byte) {
	said = bytes.Clone(item)
	var read struct {
		ID, Type, Role string
		Content        json.RawMessage
	}
	_ = json.Unmarshal(item, &read) // the model server has refused non-objects
	if len(item) == 0 || item[0] != '{' {
		return "item_" + name, said
	}
	text := func(s string) []byte { raw, _ := json.Marshal(s); return raw } // a string always marshals
	if read.Type == "" {
		read.Type = "message"
		said = jsonfield.Set(said, "type", text(read.Type))
	}
	if read.ID == "" {
		read.ID = prefixes[read.Type] + name
		if prefixes[read.Type] == "" {
			read.ID = "item_" + name
		}
		said = jsonfield.Set(said, "id", text(read.ID))
	}
	if read.Type != "message" {
		return read.ID, said
	}
	if len(read.Content) > 0 && read.Content[0] == '"' {
		part := []byte(`[{"type":"input_text","text":` + string(read.Content) + `}]`)
		if read.Role == "assistant" {
			part = []byte(`[{"type":"output_text","text":` + string(read.Content) + `,"annotations":[],"logprobs":[]}]`)
		}
		said = jsonfield.Set(said, "content", part)
	}
	if _, found := jsonfield.Find(said, "status"); !found {
		said = jsonfield.Set(said, "status", text("completed"))
	}
	return read.ID, said
}

// prefixes of items' ids, as at OpenAI.
var prefixes = map[string]string{"message": "msg_", "function_call": "fc_", "function_call_output": "fc_", "reasoning": "rs_"}
