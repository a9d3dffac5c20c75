package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/activator"
	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/activator/keys"
	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
)

type answer struct {
	status int // 0: none, it was cut
	header http.Header
	body   []byte
	large  bool // it exceeded the limit
	short  bool // no memory was left for it, or its request could not be read
	// charged is memory that the holder must release.
	charged int64
}

// kept stores an answer. One goroutine owns it.
type kept struct {
	answer
	limit  int
	memory *memory // nil: not charged
	paid   int64   // reserved before the answer came
	buf    bytes.Buffer
}

var errTooMuch = errors.New("the answer is larger than what is kept")

func (k *kept) Header() http.Header { return k.header }

func (k *kept) WriteHeader(status int) {
	if k.status == 0 && status >= http.StatusOK {
		k.status = status
	}
}

func (k *kept) Write(p []byte) (int, error) {
	k.WriteHeader(http.StatusOK)
	if k.buf.Len()+len(p) > k.limit {
		k.large = true
		return 0, errTooMuch
	}
	if n := int64(k.buf.Len()+len(p)) - k.paid - k.charged; k.memory != nil && n > 0 {
		if !k.memory.reserve(n) {
			k.short = true
			return 0, errTooMuch
		}
		k.charged += n
	}
	return k.buf.Write(p)
}

// For [http.ResponseController]: there is no slow client.
func (k *kept) FlushError() error                { return nil }
func (k *kept) SetReadDeadline(time.Time) error  { return nil }
func (k *kept) SetWriteDeadline(time.Time) error { return nil }

type sent struct {
	caller activator.Caller
	terms  activator.Terms
	id     string
	uri    string
	header http.Header
	body   io.ReadCloser
	size   int64
	paid   int64        // reserved for the answer
	claim  *store.Claim // the stored response gets its id; nil: a new id
}

func (s *Server) serveRequest(ctx context.Context, q sent) (a answer) {
	at, err := url.ParseRequestURI(q.uri)
	if err != nil { // it was valid when it was read
		return answer{status: http.StatusBadRequest}
	}
	at.Scheme, at.Host = "http", "localhost"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), q.body)
	if err != nil {
		return answer{status: http.StatusBadRequest}
	}
	r.Header, r.ContentLength, r.RequestURI = q.header, q.size, q.uri
	r.Header["X-Request-Id"] = []string{q.id}
	k := &kept{limit: s.cfg.MaxAnswer, memory: &s.memory, paid: q.paid}
	k.header = http.Header{}
	func() {
		defer func() {
			switch v := recover(); v {
			case nil:
			case http.ErrAbortHandler: // cut
				k.status = 0
			default:
				panic(v)
			}
		}()
		s.serveStored(k, r, q)
	}()
	k.body = k.buf.Bytes()
	return k.answer
}

// fate says whether to repeat an attempt.
type fate int

const (
	final   fate = iota
	refused      // no instance has seen it: retried while there is time
	failed       // an instance failed at it: retried a few times
)

// refusals are the codes of requests that no instance has seen and that may be accepted later.
var refusals = []string{api.CodeBusy, api.CodeHoldFull, queue.CodeHoldTimeout, keys.CodeRateLimit, api.CodeAsleep, api.CodeLoading, api.CodeDraining,
	api.CodeShutdown, api.CodeNoCapacity, keys.CodeNoIssuer}

// after is the wait that the answer asks for.
func judge(a answer) (f fate, code string, after time.Duration) {
	switch {
	case a.large:
		return final, "", 0
	case a.short:
		return refused, api.CodeBusy, time.Second
	case a.status == 0:
		return failed, api.CodeStreamCut, 0
	case a.status/100 == 2:
		return final, "", 0
	}
	var e struct {
		Error struct {
			Code any `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(a.body, &e) == nil {
		code, _ = e.Error.Code.(string)
	}
	if a.status < http.StatusInternalServerError && a.status != http.StatusTooManyRequests {
		return final, code, 0
	}
	if ms, err := strconv.Atoi(a.header.Get("Retry-After-Ms")); err == nil {
		after = time.Duration(min(ms, 60_000)) * time.Millisecond
	}
	if code == queue.CodeEvicted || a.header.Get("X-Rouse-Instance") == "" && slices.Contains(refusals, code) { // evicted is not its own failure
		return refused, code, after
	}
	return failed, code, after
}

func pause(n int, after time.Duration) time.Duration {
	return min(max(after, 250*time.Millisecond<<min(n, 7)), time.Minute)
}

func tokensOf(body []byte) store.Tokens {
	type details struct {
		Cached    int64 `json:"cached_tokens"`
		Reasoning int64 `json:"reasoning_tokens"`
	}
	var a struct {
		Usage struct {
			Prompt            int64   `json:"prompt_tokens"`
			Completion        int64   `json:"completion_tokens"`
			Input             int64   `json:"input_tokens"`
			Output            int64   `json:"output_tokens"`
			PromptDetails     details `json:"prompt_tokens_details"`
			CompletionDetails details `json:"completion_tokens_details"`
			InputDetails      details `json:"input_tokens_details"`
			OutputDetails     details `json:"output_tokens_details"`
		} `json:"usage"`
	}
	if json.Unmarshal(body, &a) != nil {
		return store.Tokens{}
	}
	u := a.Usage
	return store.Tokens{Input: u.Prompt + u.Input, Output: u.Completion + u.Output,
		Cached: u.PromptDetails.Cached + u.InputDetails.Cached, Reasoning: u.CompletionDetails.Reasoning + u.OutputDetails.Reasoning}
}

// held returns how long a request was held before it was sent.
func held(h http.Header) time.Duration {
	rest, found := strings.CutPrefix(h.Get("Server-Timing"), "hold;dur=")
	if !found {
		return 0
	}
	text, _, _ := strings.Cut(rest, ",")
	ms, err := strconv.ParseFloat(text, 64)
	if err != nil || !(ms > 0 && ms < 1e12) {
		return 0
	}
	return time.Duration(ms * float64(time.Millisecond))
}
