package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

type conversations struct {
	*keeper
	front Front
	reads places // of whole conversations
}

// mostNewItems is OpenAI's bound of the items in one request.
const mostNewItems = 20

type conversationObject struct {
	ID       string            `json:"id"`
	Object   string            `json:"object"`
	Created  int64             `json:"created_at"`
	Metadata map[string]string `json:"metadata"`
}

func conversationOf(_ *http.Request, c store.Job) conversationObject {
	o := conversationObject{ID: c.ID, Object: "conversation", Created: c.Created.Unix(), Metadata: c.Metadata}
	if o.Metadata == nil {
		o.Metadata = map[string]string{}
	}
	return o
}

func (k *keeper) findConversation(owner, id string) (store.Job, error) {
	c, err := k.store.Job(owner, id)
	if err == nil && !strings.HasPrefix(id, store.PrefixConversation) {
		err = store.ErrNotFound
	}
	return c, err
}

func noConversation(err error, id string) error {
	if errors.Is(err, store.ErrNotFound) {
		return &api.Error{Status: http.StatusNotFound, Param: "conversation", Message: fmt.Sprintf("there is no conversation %.80q: it was deleted or has expired, or POST %s makes one", id, pathConversations)}
	}
	return err
}

type conversationRequest struct {
	Items    json.RawMessage   `json:"items"`
	Metadata map[string]string `json:"metadata"`
}

// Items is nil if the body has none.
func (s *conversations) readConversation(w http.ResponseWriter, r *http.Request, c activator.Caller) (q conversationRequest, err error) {
	body, err := s.front.ReadBody(w, r, c)
	if err != nil {
		return q, err
	}
	defer body.Release()
	if text := bytes.TrimSpace(body.Bytes()); len(text) > 0 {
		if err := json.Unmarshal(text, &q); err != nil {
			return q, api.BadRequest("", "the body is no such JSON object: %v", api.Explain(err))
		}
	}
	if string(q.Items) == "null" {
		q.Items = nil
	}
	if len(q.Items) > 0 {
		n := 0
		var wrong *api.Error
		err := jsonfield.Items(q.Items, func(item []byte) bool {
			wrong = checkItem(n, item)
			n++
			return wrong == nil
		})
		switch {
		case wrong != nil:
			return q, wrong
		case err != nil:
			return q, api.BadRequest("items", "items is %.80s: want an array of items, such as {\"type\": \"message\", \"role\": \"user\", \"content\": \"…\"}", q.Items)
		case n > mostNewItems:
			return q, api.BadRequest("items", "there are %d items: want %d at most", n, mostNewItems)
		case n == 0:
			q.Items = nil
		}
	}
	return q, checkMetadata(q.Metadata)
}

func checkItem(n int, item []byte) *api.Error {
	var v struct {
		ID, Type, Role string
		Content        json.RawMessage
	}
	at := fmt.Sprintf("items[%d]", n)
	if err := json.Unmarshal(item, &v); err != nil || item[0] != '{' {
		return api.BadRequest("items", "%s is %.80s: want an object such as {\"type\": \"message\", \"role\": \"user\", \"content\": \"…\"}", at, item)
	}
	const longest = 256
	if len(v.ID) > longest {
		return api.BadRequest("items", "%s.id has %d bytes: want %d at most, or none", at, len(v.ID), longest)
	}
	switch v.Type {
	case "", "message":
		switch v.Role {
		case "user", "assistant", "system", "developer":
		default:
			return api.BadRequest("items", "%s.role is %.40q: want user, assistant, system or developer", at, v.Role)
		}
		if len(v.Content) == 0 || v.Content[0] != '"' && v.Content[0] != '[' {
			return api.BadRequest("items", "%s.content is missing: want a text, or an array of parts", at)
		}
	case "function_call", "function_call_output", "reasoning":
	default:
		return api.BadRequest("items", "%s is of the type %.40q: want message, function_call, function_call_output or reasoning", at, v.Type)
	}
	return nil
}

func (s *conversations) createConversation(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	q, err := s.readConversation(w, r, c)
	if err != nil {
		return err
	}
	made, err := s.store.NewConversation(c.Owner(), q.Metadata)
	if err == nil && q.Items != nil {
		if _, err = s.store.AddTurn(c.Owner(), made.ID, q.Items, nil, nil, nil); err != nil {
			err = errors.Join(err, s.store.DeleteConversation(c.Owner(), made.ID))
		}
	}
	return writeJob(w, r, err, made, conversationOf)
}

func (s *conversations) updateConversation(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	q, err := s.readConversation(w, r, c)
	if err != nil {
		return err
	}
	if q.Metadata == nil {
		return absent("metadata")
	}
	had, err := s.findConversation(c.Owner(), r.PathValue("id"))
	if err == nil {
		had, err = s.store.SetMetadata(c.Owner(), had.ID, q.Metadata)
	}
	return writeJob(w, r, err, had, conversationOf)
}

func (s *conversations) deleteConversation(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	had, err := s.findConversation(c.Owner(), r.PathValue("id"))
	if err == nil {
		err = s.store.DeleteConversation(c.Owner(), had.ID)
	}
	return writeDeleted(w, err, had.ID, "conversation.deleted")
}

// whole limits a handler that reads whole conversations: a few run at once, and the client's limits count them.
func (s *conversations) whole(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
		if err := s.reads.await(r.Context(), c.Client, 20*time.Millisecond); err != nil {
			return err
		}
		defer s.reads.give(c.Client)
		if err := s.front.Charge(r.Context(), c); err != nil {
			return err
		}
		return h(w, r, c)
	}
}

// hasRoom returns an error unless a conversation of so many turns can grow to n bytes.
func (k *keeper) hasRoom(turns int, n int64) error {
	switch {
	case turns >= k.maxTurns:
		return api.BadRequest("conversation", "the conversation has %d turns, as many as may be: begin a new one, or delete an item, which makes one turn of all", turns)
	case n > maxConversation:
		return api.BadRequest("conversation", "the conversation would have %s: want %s at most: begin a new one, or delete items", api.Bytes(n), api.Bytes(maxConversation))
	}
	return nil
}

// fits returns a check that n bytes can be added after a turn. An answer that is made already may exceed the bounds, as
// far as turns reads.
func (k *keeper) fits(owner string, n int64, made bool) func(last string) error {
	return func(last string) error {
		before, err := k.turns(owner, last)
		if err != nil {
			return err
		}
		turns, size := len(before), n
		for _, t := range before {
			size += t.Answer.Bytes
		}
		if made {
			turns, size = turns-slackTurns, size-maxConversation
		}
		return k.hasRoom(turns, size)
	}
}

func (s *conversations) conversationItems(owner, id string) (c store.Job, ids []string, items []json.RawMessage, err error) {
	c, err = s.findConversation(owner, id)
	if err == nil && c.Previous != "" {
		ids, items, err = s.itemsOf(owner, c.Previous, true)
	}
	return c, ids, items, err
}

func (s *conversations) listItems(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	q, err := query(r.URL.Query(), usualItems, mostItems)
	if err != nil {
		return err
	}
	_, ids, items, err := s.conversationItems(c.Owner(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeItems(w, q, ids, items)
}

func (s *conversations) addItems(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	q, err := s.readConversation(w, r, c)
	if err != nil {
		return err
	}
	if q.Items == nil {
		return absent("items")
	}
	had, err := s.findConversation(c.Owner(), r.PathValue("id"))
	if err != nil {
		return err
	}
	turn, err := s.store.AddTurn(c.Owner(), had.ID, q.Items, nil, s.fits(c.Owner(), int64(len(q.Items)), false), nil)
	if err != nil {
		return err
	}
	ids, items, err := namedItems(turn, map[string]bool{}, q.Items)
	if err != nil {
		return err
	}
	return writeItems(w, store.Query{Limit: mostNewItems, Oldest: true}, ids, items)
}

func (s *conversations) findItem(r *http.Request, c activator.Caller) (had store.Job, items []json.RawMessage, at int, err error) {
	had, ids, items, err := s.conversationItems(c.Owner(), r.PathValue("id"))
	if err != nil {
		return had, nil, 0, err
	}
	if at = slices.Index(ids, r.PathValue("item")); at < 0 {
		err = &api.Error{Status: http.StatusNotFound, Param: "item_id", Message: fmt.Sprintf("there is no item %.80q in the conversation %s", r.PathValue("item"), had.ID)}
	}
	return had, items, at, err
}

func (s *conversations) showItem(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	_, items, at, err := s.findItem(r, c)
	if err == nil {
		api.WriteJSON(w, http.StatusOK, items[at])
	}
	return err
}

// deleteItem makes one turn of the items that are left.
func (s *conversations) deleteItem(w http.ResponseWriter, r *http.Request, c activator.Caller) error {
	for {
		had, items, at, err := s.findItem(r, c)
		if err != nil {
			return err
		}
		left, err := json.Marshal(slices.Delete(items, at, at+1))
		if err == nil {
			err = s.store.ReplaceTurns(c.Owner(), had.ID, had.Previous, left)
		}
		if !errors.Is(err, store.ErrState) || r.Context().Err() != nil { // else a turn was added meanwhile
			return writeJob(w, r, err, had, conversationOf)
		}
	}
}
