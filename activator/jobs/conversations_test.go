package jobs

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/peer"
)

const user = `{"type":"message","role":"user","content":%q}`

// converse sends a request about conversations.
func converse[T any](b *bench, status int, method, path, body string) T {
	b.t.Helper()
	return want[T](b, status, b.do(method, pathConversations+path, "a", strings.NewReader(body), "Content-Type", "application/json"))
}

// texts returns the texts of a conversation's items, the oldest first, with their roles' first letters.
func (b *bench) texts(id string) (all []string) {
	b.t.Helper()
	page := converse[struct {
		Data []struct {
			ID, Role string
			Content  []struct{ Text string }
		}
	}](b, http.StatusOK, http.MethodGet, "/"+id+"/items?order=asc&limit=100", "")
	for _, item := range page.Data {
		all = append(all, item.Role[:1]+" "+item.Content[0].Text)
	}
	return all
}

func (b *bench) wantTexts(id string, want ...string) {
	b.t.Helper()
	if got := b.texts(id); strings.Join(got, ", ") != strings.Join(want, ", ") {
		b.t.Errorf("the items are %q, want %q", got, want)
	}
}

// TestConversations: what is asked and answered in a conversation is added to it, and goes before what is asked next.
func TestConversations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		var asked []string
		b.answers(func(w http.ResponseWriter, r *http.Request, body string) {
			asked = append(asked, body)
			say("completed")(w, r, body)
		})
		made := converse[conversationObject](b, http.StatusOK, http.MethodPost, "", `{"metadata":{"topic":"fruit"},"items":[`+fmt.Sprintf(user, "hello")+`]}`)
		if !strings.HasPrefix(made.ID, "conv_") || made.Object != "conversation" || made.Created == 0 || made.Metadata["topic"] != "fruit" {
			t.Errorf("made is %+v", made)
		}
		// By its id, and by an object with it; stored, and not.
		r := want[struct {
			ID           string
			Conversation struct{ ID string }
			Previous     *string `json:"previous_response_id"`
		}](b, http.StatusOK, b.respond("a", `{"model":"m","store":true,"input":"one","conversation":"`+made.ID+`"}`))
		if r.Conversation.ID != made.ID || r.Previous != nil {
			t.Errorf("the response is %+v", r)
		}
		want[stored](b, http.StatusOK, b.respond("a", `{"model":"m","input":"two","conversation":{"id":"`+made.ID+`"}}`))
		if strings.Contains(asked[1], made.ID) || !strings.Contains(asked[1], `"content":"one"`) {
			t.Errorf("the model server was asked %s", asked[1])
		}
		b.wantTexts(made.ID, "u hello", "u one", "a 2 items", "u two", "a 4 items")
		// A stored response may be deleted: the conversation keeps its own.
		want[deleted](b, http.StatusOK, b.do(http.MethodDelete, responsesPath+"/"+r.ID, "a", nil))
		converse[itemPage](b, http.StatusOK, http.MethodPost, "/"+made.ID+"/items", `{"items":[`+fmt.Sprintf(user, "three")+`]}`)
		b.wantTexts(made.ID, "u hello", "u one", "a 2 items", "u two", "a 4 items", "u three")
		// A response in the background, after a restart.
		b.stop()
		b.start(Config{})
		b.answers(func(w http.ResponseWriter, r *http.Request, body string) { say("completed")(w, r, body) })
		later := want[stored](b, http.StatusOK, b.respond("a", `{"model":"m","background":true,"input":"four","conversation":"`+made.ID+`"}`))
		b.ends("a", later.ID)
		if got := b.texts(made.ID); len(got) != 8 || got[6] != "u four" || got[7] != "a 7 items" {
			t.Errorf("the items are %q", got)
		}
		// One that failed, or was cut, adds nothing.
		b.answers(say("failed"))
		want[stored](b, http.StatusOK, b.respond("a", `{"model":"m","input":"x","conversation":"`+made.ID+`"}`))
		b.answers(func(http.ResponseWriter, *http.Request, string) { panic(http.ErrAbortHandler) })
		func() {
			defer func() { _ = recover() }()
			b.respond("a", `{"model":"m","input":"x","conversation":"`+made.ID+`"}`)
		}()
		if got := b.texts(made.ID); len(got) != 8 {
			t.Errorf("the items are %q", got)
		}
		// New metadata, and its end.
		if c := converse[conversationObject](b, http.StatusOK, http.MethodPost, "/"+made.ID, `{"metadata":{"topic":"nuts"}}`); c.Metadata["topic"] != "nuts" {
			t.Errorf("changed is %+v", c)
		}
		want[deleted](b, http.StatusOK, b.do(http.MethodDelete, responsesPath+"/"+later.ID, "a", nil))
		if d := converse[deleted](b, http.StatusOK, http.MethodDelete, "/"+made.ID, ""); d.Object != "conversation.deleted" || b.store.Bytes() != 0 {
			t.Errorf("deleted: %+v, %d bytes are left", d, b.store.Bytes())
		}
	})
}

// TestConversationItems: an item is shown and deleted by its id, which stays.
func TestConversationItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.answers(say("completed"))
		made := converse[conversationObject](b, http.StatusOK, http.MethodPost, "", "")
		b.wantTexts(made.ID)
		added := converse[itemPage](b, http.StatusOK, http.MethodPost, "/"+made.ID+"/items", `{"items":[`+fmt.Sprintf(user, "one")+","+fmt.Sprintf(user, "two")+`]}`)
		want[stored](b, http.StatusOK, b.respond("a", `{"model":"m","input":"three","conversation":"`+made.ID+`"}`))
		before := converse[itemPage](b, http.StatusOK, http.MethodGet, "/"+made.ID+"/items?order=asc", "")
		if len(before.Data) != 4 || before.First != added.First {
			t.Errorf("the items are %+v", before)
		}
		path := "/" + made.ID + "/items/" + added.First
		item := converse[struct{ ID string }](b, http.StatusOK, http.MethodGet, path, "")
		if item.ID != added.First {
			t.Errorf("the item is %+v", item)
		}
		converse[conversationObject](b, http.StatusOK, http.MethodDelete, path, "")
		after := converse[itemPage](b, http.StatusOK, http.MethodGet, "/"+made.ID+"/items?order=asc", "")
		for k, left := range before.Data[1:] {
			if string(after.Data[k]) != string(left) {
				t.Errorf("item %d is %s, was %s", k, after.Data[k], left)
			}
		}
		converse[struct{}](b, http.StatusNotFound, http.MethodGet, path, "")
		want[stored](b, http.StatusOK, b.respond("a", `{"model":"m","input":"four","conversation":"`+made.ID+`"}`))
		b.wantTexts(made.ID, "u two", "u three", "a 3 items", "u four", "a 4 items")
		page := converse[itemPage](b, http.StatusOK, http.MethodGet, "/"+made.ID+"/items?limit=1&after="+after.Last, "")
		if len(page.Data) != 1 || !page.More || string(page.Data[0]) != string(after.Data[1]) {
			t.Errorf("a page is %+v", page)
		}
	})
}

// TestConversationRefusals: what is wrong is named, and what belongs to another tenant is not there.
func TestConversationRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.answers(say("completed"))
		made := converse[conversationObject](b, http.StatusOK, http.MethodPost, "", "{}")
		for _, c := range []struct {
			status             int
			method, path, body string
			says               string
		}{
			{400, "POST", pathConversations, `[]`, "JSON object"},
			{400, "POST", pathConversations, `{"items":"x"}`, "array of items"},
			{400, "POST", pathConversations, `{"items":["x"]}`, `items[0] is \"x\": want an object`},
			{400, "POST", pathConversations, `{"items":[` + fmt.Sprintf(user, "x") + `,{}]}`, "items[1].role"},
			{400, "POST", pathConversations, `{"items":[{"role":"user"}]}`, "items[0].content"},
			{400, "POST", pathConversations, `{"items":[{"role":"tool","content":"x"}]}`, "want user, assistant"},
			{400, "POST", pathConversations, `{"items":[{"type":"item_reference","id":"x"}]}`, "items[0] is of the type"},
			{400, "POST", pathConversations, `{"items":[{"id":"` + strings.Repeat("x", 300) + `","role":"user","content":"x"}]}`, "items[0].id"},
			{400, "POST", pathConversations, `{"items":[` + strings.Repeat(fmt.Sprintf(user, "x")+",", 20) + fmt.Sprintf(user, "x") + `]}`, "20 at most"},
			{400, "POST", pathConversations, `{"metadata":{"k":"` + strings.Repeat("x", 600) + `"}}`, "metadata"},
			{400, "POST", pathConversations + "/" + made.ID, `{}`, "metadata"},
			{400, "POST", pathConversations + "/" + made.ID + "/items", `{}`, "items"},
			{400, "GET", pathConversations + "/" + made.ID + "/items?after=x", ``, "x"},
			{404, "GET", pathConversations + "/conv_x", ``, "no conversation"},
			{404, "GET", pathConversations + "/" + made.ID + "/items/x", ``, "no item"},
			{404, "DELETE", pathConversations + "/" + made.ID + "/items/x", ``, "no item"},
			{404, "POST", responsesPath, `{"conversation":"conv_x","input":"x"}`, "no conversation"},
			{404, "POST", responsesPath, `{"conversation":"conv_x","input":"x","background":true}`, "no conversation"},
			{400, "POST", responsesPath, `{"conversation":7,"input":"x"}`, "id of a conversation"},
			{400, "POST", responsesPath, `{"conversation":"","input":"x"}`, "id of a conversation"},
			{400, "POST", responsesPath, `{"conversation":{},"input":"x"}`, "id of a conversation"},
			{400, "POST", responsesPath, `{"conversation":"` + made.ID + `","previous_response_id":"resp_x","input":"x"}`, "previous_response_id"},
		} {
			w := b.do(c.method, c.path, "a", strings.NewReader(c.body), "Content-Type", "application/json")
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
				t.Errorf("%s %s %.60s: %d %s", c.method, c.path, c.body, w.Code, w.Body)
			}
		}
		for _, c := range []struct{ method, path, body string }{
			{"GET", "", ""}, {"POST", "", `{"metadata":{}}`}, {"DELETE", "", ""}, {"GET", "/items", ""}, {"POST", "/items", `{"items":[` + fmt.Sprintf(user, "x") + `]}`},
		} {
			if w := b.do(c.method, pathConversations+"/"+made.ID+c.path, "b", strings.NewReader(c.body)); w.Code != http.StatusNotFound {
				t.Errorf("another tenant's: %s %s: %d %s", c.method, c.path, w.Code, w.Body)
			}
		}
		if w := b.respond("b", `{"conversation":"`+made.ID+`","input":"x"}`); w.Code != http.StatusNotFound {
			t.Errorf("another tenant's: %d %s", w.Code, w.Body)
		}
	})
}

// TestResponsesOutliveTurns: what was stored of a conversation can be gone on from, and is listed, whatever is deleted of the
// conversation. Turns are no responses.
func TestResponsesOutliveTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.answers(say("completed"))
		made := converse[conversationObject](b, http.StatusOK, http.MethodPost, "", `{"items":[`+fmt.Sprintf(user, "hello")+`]}`)
		ask := func(more string) (r stored) {
			return want[stored](b, http.StatusOK, b.respond("a", `{"model":"m","store":true,"input":"x",`+more+`}`))
		}
		ask(`"conversation":"` + made.ID + `"`)
		second := ask(`"conversation":"` + made.ID + `"`)
		items := func() int {
			return len(want[itemPage](b, http.StatusOK, b.do(http.MethodGet, responsesPath+"/"+second.ID+"/input_items", "a", nil)).Data)
		}
		if n := items(); n != 4 {
			t.Errorf("its input has %d items", n)
		}
		page := converse[itemPage](b, http.StatusOK, http.MethodGet, "/"+made.ID+"/items", "")
		converse[conversationObject](b, http.StatusOK, http.MethodDelete, "/"+made.ID+"/items/"+page.First, "")
		ask(`"previous_response_id":"` + second.ID + `"`)
		c, err := b.store.Job(peer.Named("a"), made.ID)
		if err != nil || !store.IsTurn(c.Previous) {
			t.Fatal(c, err)
		}
		for _, more := range []string{"", `,"background":true`} {
			if w := b.respond("a", `{"model":"m","input":"x","previous_response_id":"`+c.Previous+`"`+more+`}`); w.Code != http.StatusBadRequest {
				t.Errorf("a turn as the previous response: %d %s", w.Code, w.Body)
			}
		}
		if w := b.do(http.MethodGet, responsesPath+"/"+c.Previous+"/input_items", "a", nil); w.Code != http.StatusNotFound {
			t.Errorf("a turn as a response: %d %s", w.Code, w.Body)
		}
		converse[deleted](b, http.StatusOK, http.MethodDelete, "/"+made.ID, "")
		ask(`"previous_response_id":"` + second.ID + `"`)
		if n := items(); n != 4 {
			t.Errorf("its input has %d items", n)
		}
	})
}

// TestCancelledTurn: a response that was cancelled while its answer came is not added to its conversation.
func TestCancelledTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		made := converse[conversationObject](b, http.StatusOK, http.MethodPost, "", "")
		var id string
		b.answers(func(w http.ResponseWriter, r *http.Request, body string) {
			time.Sleep(time.Second) // the client has the id
			want[stored](b, http.StatusOK, b.do(http.MethodPost, responsesPath+"/"+id+"/cancel", "a", nil))
			say("completed")(w, r, body)
		})
		later := want[stored](b, http.StatusOK, b.respond("a", `{"model":"m","background":true,"input":"x","conversation":"`+made.ID+`"}`))
		id = later.ID
		if r := b.ends("a", later.ID); r.Status != "cancelled" {
			t.Errorf("it is %+v", r)
		}
		b.wantTexts(made.ID)
	})
}

// TestDeletedConversation: a response whose conversation was deleted while its answer came is not stored, and one in the
// background has failed, with the reason.
func TestDeletedConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		made := func(background bool) (id, body string) {
			id = converse[conversationObject](b, http.StatusOK, http.MethodPost, "", "").ID
			b.answers(func(w http.ResponseWriter, r *http.Request, body string) {
				converse[deleted](b, http.StatusOK, http.MethodDelete, "/"+id, "")
				say("completed")(w, r, body)
			})
			return id, fmt.Sprintf(`{"model":"m","store":true,"background":%t,"input":"x","conversation":%q}`, background, id)
		}
		_, body := made(false)
		if w := b.respond("a", body); w.Code != http.StatusNotFound || b.store.Bytes() != 0 {
			t.Errorf("%d %s, and %d bytes are stored", w.Code, w.Body, b.store.Bytes())
		}
		id, body := made(true)
		r := b.ends("a", want[stored](b, http.StatusOK, b.respond("a", body)).ID)
		if r.Status != "failed" || r.Error == nil || !strings.Contains(r.Error.Message, id) {
			t.Errorf("in the background it is %+v", r)
		}
	})
}

// TestTurnWithAnother: another job is stored with a turn, or neither is, also if the turn can't be added after it.
func TestTurnWithAnother(t *testing.T) {
	s, err := store.Open(store.Config{At: t.TempDir()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	refused := errors.New("refused")
	for name, tt := range map[string]struct {
		then func(conversation string) error
		want error
	}{
		"both":                        {func(string) error { return nil }, nil},
		"the other can't be stored":   {func(string) error { return refused }, refused},
		"the conversation is deleted": {func(c string) error { return s.DeleteConversation("a", c) }, store.ErrNotFound},
	} {
		c, err := s.NewConversation("a", nil)
		if err != nil {
			t.Fatal(err)
		}
		r := store.Job{Owner: "a", Status: store.Completed}
		r.ID, r.Created = s.NewID(store.PrefixResponse)
		_, err = s.AddTurn("a", c.ID, []byte("[]"), nil, nil, func() (string, error) {
			if err := tt.then(c.ID); errors.Is(err, refused) {
				return "", err
			} else if err != nil {
				t.Error(err)
			}
			return r.ID, s.KeepResponse(r, nil, []byte("[]"), []byte("{}"), nil)
		})
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		_, err = s.Job("a", r.ID)
		if (err == nil) != (tt.want == nil) {
			t.Errorf("%s: the other is %v", name, err)
		}
		if c, err = s.Job("a", c.ID); err == nil && (c.Previous != "") != (tt.want == nil) {
			t.Errorf("%s: the conversation's last turn is %q", name, c.Previous)
		}
		if tt.want == nil {
			err = errors.Join(s.DeleteConversation("a", c.ID), s.Delete("a", r.ID))
		} else if err = s.DeleteConversation("a", c.ID); errors.Is(err, store.ErrNotFound) {
			err = nil
		}
		if err != nil || s.Bytes() != 0 {
			t.Errorf("%s: left are %d bytes, %v", name, s.Bytes(), err)
		}
	}
}

// TestFullConversation: one that has no room is refused before its model is asked, and can still be read and shortened.
func TestFullConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		b.answers(say("completed"))
		b.keeper.maxTurns = 3
		item := `{"items":[` + fmt.Sprintf(user, "x") + `]}`
		made := converse[conversationObject](b, http.StatusOK, http.MethodPost, "", item)
		for range 2 {
			want[stored](b, http.StatusOK, b.respond("a", `{"model":"m","input":"x","conversation":"`+made.ID+`"}`))
		}
		converse[struct{}](b, http.StatusBadRequest, http.MethodPost, "/"+made.ID+"/items", item)
		if w := b.respond("a", `{"model":"m","input":"x","conversation":"`+made.ID+`"}`); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "3 turns") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		page := converse[itemPage](b, http.StatusOK, http.MethodGet, "/"+made.ID+"/items", "")
		converse[conversationObject](b, http.StatusOK, http.MethodDelete, "/"+made.ID+"/items/"+page.First, "")
		want[stored](b, http.StatusOK, b.respond("a", `{"model":"m","input":"x","conversation":"`+made.ID+`"}`))
	})
}

// TestTurnsAtOnce: turns that are added at the same time are all in the conversation, one after the other. None is left when it is
// deleted meanwhile.
func TestTurnsAtOnce(t *testing.T) {
	s, err := store.Open(store.Config{At: t.TempDir()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, deletes := range []bool{false, true} {
		c, err := s.NewConversation("a", nil)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for n := range 16 {
			all.Go(func() {
				if deletes && n == 8 {
					if err := s.DeleteConversation("a", c.ID); err != nil {
						t.Error(err)
					}
					return
				}
				if _, err := s.AddTurn("a", c.ID, fmt.Appendf(nil, "[%d]", n), nil, nil, nil); err != nil && !(deletes && errors.Is(err, store.ErrNotFound)) {
					t.Error(err)
				}
				if n%4 != 0 { // a change gives up after 20 conflicts, and there are no more than 20 writes
					return
				}
				_, err := s.SetMetadata("a", c.ID, map[string]string{"n": fmt.Sprint(n)})
				if err != nil && !(deletes && errors.Is(err, store.ErrNotFound)) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if !deletes {
			c, err = s.Job("a", c.ID)
			seen := map[string]bool{}
			for id := c.Previous; id != "" && err == nil && !seen[id]; {
				seen[id] = true
				var turn store.Job
				turn, err = s.Job("a", id)
				id = turn.Previous
			}
			if err != nil || len(seen) != 16 {
				t.Errorf("the turns are %v, %v", seen, err)
			}
			if err := s.DeleteConversation("a", c.ID); err != nil {
				t.Error(err)
			}
		}
		if s.Bytes() != 0 {
			t.Errorf("deleted meanwhile is %v: %d bytes are left", deletes, s.Bytes())
		}
		if _, err := s.AddTurn("a", c.ID, []byte("[]"), nil, nil, nil); !errors.Is(err, store.ErrNotFound) || s.Bytes() != 0 {
			t.Errorf("after its end: %v, %d bytes", err, s.Bytes())
		}
	}
}

// TestTurnsThatDoNotFit: turns that are added at the same time are judged one after the other, and one that is refused leaves nothing.
func TestTurnsThatDoNotFit(t *testing.T) {
	s, err := store.Open(store.Config{At: t.TempDir()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := s.NewConversation("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	fits := func(last string) error {
		for n := 0; last != ""; n++ {
			if n == 4 {
				return full
			}
			turn, err := s.Job("a", last)
			if err != nil {
				return err
			}
			last = turn.Previous
		}
		return nil
	}
	var all sync.WaitGroup
	var kept atomic.Int32
	for range 16 {
		all.Go(func() {
			if _, err := s.AddTurn("a", c.ID, []byte("[]"), nil, fits, nil); err == nil {
				kept.Add(1)
			} else if !errors.Is(err, full) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if c, err = s.Job("a", c.ID); err != nil || kept.Load() != 5 || !errors.Is(fits(c.Previous), full) {
		t.Errorf("%d turns are kept, %v", kept.Load(), err)
	}
	if err := s.DeleteConversation("a", c.ID); err != nil || s.Bytes() != 0 {
		t.Errorf("deleted: %v, %d bytes are left", err, s.Bytes())
	}
}

// TestItemsWithOneID: ids that a client uses again are other ones in the list, so that pages end.
func TestItemsWithOneID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{})
		made := converse[conversationObject](b, http.StatusOK, http.MethodPost, "", "{}")
		again := `{"id":"msg_a","role":"user","content":"x"}`
		for range 2 {
			converse[itemPage](b, http.StatusOK, http.MethodPost, "/"+made.ID+"/items", `{"items":[`+again+","+again+`]}`)
		}
		ids, after := map[string]bool{}, ""
		for range 5 {
			page := converse[itemPage](b, http.StatusOK, http.MethodGet, "/"+made.ID+"/items?order=asc&limit=1"+after, "")
			if ids[page.Last] = true; !page.More {
				break
			}
			after = "&after=" + page.Last
		}
		if len(ids) != 4 || !ids["msg_a"] {
			t.Errorf("the items are %v, want four", ids)
		}
	})
}
