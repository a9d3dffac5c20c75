package responses

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/activator/batch/store"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// Config bounds what is kept. The zero value of each field has the default that is named.
type Config struct {
	// MaxAnswer bounds an answer that is kept, and one event of a stream. Default 32 MiB.
	MaxAnswer int
	// MaxTurns and MaxConversation bound what a request goes on from: responses, and what was asked and answered in them. Default 500 and 32 MiB.
	MaxTurns        int
	MaxConversation int64
	// WriteTimeout is how long a client may leave an answer unread. Default 1 min.
	WriteTimeout time.Duration
}

// Keeper keeps responses. See the package comment.
type Keeper struct {
	cfg   Config
	store store.Store
	log   *slog.Logger
	count func(result string)
}

// New makes a Keeper. count counts what became of responses that were to be kept: "kept", or "failed" where the store could not.
func New(cfg Config, s store.Store, log *slog.Logger, count func(result string)) *Keeper {
	cfg.MaxAnswer = cmp.Or(cfg.MaxAnswer, 32<<20)
	cfg.MaxTurns = cmp.Or(cfg.MaxTurns, 500)
	cfg.MaxConversation = cmp.Or(cfg.MaxConversation, 32<<20)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, time.Minute)
	return &Keeper{cfg: cfg, store: s, log: log, count: count}
}

// Turn is a request whose response is kept, or that goes on from one that is.
type Turn struct {
	Request
	// Owner is whose the response is.
	Owner string
	// Claim is the claim of a request that is answered later, whose id the response gets; nil: it is served now. The request is done once
	// the response is kept.
	Claim *store.Later
	// Take charges whoever pays for the body with bytes more; nil: nobody does.
	Take func(n int64) error
}

// usualAnswer is the room that an answer should have before it is asked for.
const usualAnswer = 64 << 10

// Serve has next serve a turn, and keeps the response where that is asked for. An error is why next was not asked: nothing is written
// then. It blocks as long as next does, and then until the response is on disk.
func (k *Keeper) Serve(w http.ResponseWriter, r *http.Request, t Turn, next http.Handler) error {
	input, err := t.items()
	if err != nil {
		return err
	}
	take := t.Take
	if take == nil {
		take = func(int64) error { return nil }
	}
	out := &writer{w: w, r: r, k: k, turn: &t}
	if t.Store {
		if err := k.store.Fits(t.Owner, int64(len(input))+usualAnswer); err != nil {
			return err
		}
		out.kept = store.Response{Owner: t.Owner, Previous: t.Previous, Background: t.Claim != nil}
		if out.kept.ID, out.kept.Created = k.store.NewResponseID(); t.Claim != nil {
			out.kept.ID = t.Claim.ID
		}
		out.input = input
	}
	var so []byte
	if t.Previous != "" {
		if so, out.before, err = k.before(t.Owner, t.Previous, take); err != nil {
			return err
		}
	}
	if err := take(int64(len(t.body) + len(so))); err != nil { // until next has read it
		return err
	}
	body := t.sent(so, input)
	r = r.Clone(r.Context())
	r.Header.Del("Accept-Encoding")
	r.Header.Del("Content-Length")
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	next.ServeHTTP(out, r)
	out.finish()
	return nil
}

// told is what a response says of itself that the model server can't know.
func (t *Turn) told(response []byte, id string) []byte {
	set := func(name string, v any) {
		raw, _ := json.Marshal(v) // a text, a truth or nothing
		response = jsonfield.Set(response, name, raw)
	}
	if t.Store {
		set("id", id)
		set("store", true)
	}
	if t.Claim != nil {
		set("background", true)
	}
	if t.Previous != "" {
		set("previous_response_id", t.Previous)
	}
	return response
}
