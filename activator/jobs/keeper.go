package jobs

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

const (
	maxTurns        = 500      // of the conversation that a request continues
	maxConversation = 32 << 20 // of a conversation's inputs and outputs, in bytes
	// writeTimeout is how long a client may leave an answer unread.
	writeTimeout = time.Minute
)

// keeper stores OpenAI's responses (store: true), and continues from stored ones (previous_response_id) and from
// conversations. It stands in front of the handler of /v1/responses. It is safe for concurrent use and starts no
// goroutines.
type keeper struct {
	maxAnswer, maxTurns int // bytes of a stored answer or of one event of a stream; responses of a conversation

	store *store.Store
	log   *slog.Logger
	count func(result string)
}

// count counts "kept", or "failed" if the store failed.
func newKeeper(maxAnswer int, s *store.Store, log *slog.Logger, count func(result string)) *keeper {
	return &keeper{maxAnswer: maxAnswer, maxTurns: maxTurns, store: s, log: log, count: count}
}

type turn struct {
	responseRequest
	Owner string
	// Claim is the claim of a background request, whose id the response gets; nil: a direct request. Storing the response
	// ends the claimed request.
	Claim *store.Claim
	// Take charges for n more bytes of memory; nil: not charged.
	Take func(n int64) error
}

// Serve serves a turn with next, and stores the response if requested. If it returns an error, it has written nothing and
// not called next. It blocks until the response is on disk.
func (k *keeper) Serve(w http.ResponseWriter, r *http.Request, t turn, next http.Handler) error {
	input, err := t.items()
	if err != nil {
		return err
	}
	take := t.Take
	if take == nil {
		take = func(int64) error { return nil }
	}
	if t.Conversation != "" {
		c, err := k.findConversation(t.Owner, t.Conversation)
		if err != nil {
			return noConversation(err, t.Conversation)
		}
		t.Previous = c.Previous
	}
	out := &responseWriter{w: w, r: r, k: k, turn: &t, input: input, kept: store.Job{Owner: t.Owner, Response: store.Response{Previous: t.Previous, Background: t.Claim != nil}}}
	var so []byte
	if t.Previous != "" {
		if so, out.before, err = k.conversation(t.Owner, t.Previous, take); err != nil {
			return err
		}
	}
	size, more := int64(len(input))+usualAnswer, 1
	if t.Conversation != "" {
		if err := k.hasRoom(len(out.before), int64(len(so)+len(input))); err != nil {
			return err
		}
		out.kept.Previous, out.before = "", nil
		if t.Store { // with all before it: the conversation's turns are its own
			if so != nil {
				out.whole = join(so, input)
			}
			size, more = 2*size+int64(len(so)), 2
		}
	}
	if out.kept.ID, out.kept.Created = k.store.NewID(store.PrefixResponse); t.Claim != nil {
		out.kept.ID, more = t.Claim.Job().ID, more-1
	}
	if t.Store || t.Conversation != "" {
		if err := k.store.Fits(t.Owner, size, more); err != nil {
			return err
		}
	}
	if err := take(int64(len(t.body) + len(so))); err != nil { // until next has read it
		return err
	}
	body := t.bodyToSend(so, input)
	r = r.Clone(r.Context())
	r.Header.Del("Accept-Encoding")
	r.Header.Del("Content-Length")
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	next.ServeHTTP(out, r)
	out.finish()
	return nil
}

func (t *turn) setFields(response []byte, id string) []byte {
	set := func(name string, v any) {
		raw, _ := json.Marshal(v) // of strings, or a bool
		response = jsonfield.Set(response, name, raw)
	}
	if t.Store {
		set("id", id)
		set("store", true)
	}
	if t.Claim != nil {
		set("background", true)
	}
	if t.Conversation != "" {
		set("conversation", map[string]string{"id": t.Conversation})
	} else if t.Previous != "" {
		set("previous_response_id", t.Previous)
	}
	return response
}
