package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strconv"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
	"github.com/rouse-dev/rouse/internal/relay"
)

// mode is how a writer handles an answer.
type mode int

const (
	unknown mode = iota
	passed
	whole // delayed until its end
	events
)

// responseWriter receives an answer from the next handler. The request's goroutine owns it.
type responseWriter struct {
	w    http.ResponseWriter
	r    *http.Request
	k    *keeper
	turn *turn

	kept   store.Job
	before []string // the ids of the previous responses
	input  []byte
	whole  []byte // the input with the conversation, if that is stored too; nil: input

	mode   mode
	status int
	buf    []byte // the answer so far, or a stream's incomplete event
	split  relay.Splitter
	over   bool
	done   bool
	failed bool
	number int // of the next event
}

func (w *responseWriter) Header() http.Header { return w.w.Header() }

func (w *responseWriter) Unwrap() http.ResponseWriter { return w.w }

func (w *responseWriter) FlushError() error {
	if w.mode == whole {
		return nil
	}
	return http.NewResponseController(w.w).Flush()
}

func (w *responseWriter) WriteHeader(status int) {
	if status < http.StatusOK {
		w.w.WriteHeader(status)
		return
	}
	if w.mode != unknown {
		return
	}
	media, _, _ := mime.ParseMediaType(w.Header().Get("Content-Type"))
	switch {
	case status/100 == 2 && media == "text/event-stream":
		w.mode = events
		w.Header().Del("Content-Length")
		w.w.WriteHeader(status)
	case status/100 == 2:
		w.mode, w.status = whole, status
	default:
		w.mode = passed
		w.w.WriteHeader(status)
	}
}

// Write drops what follows an error, but the handler's answer is read to its end.
func (w *responseWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	most := w.k.maxAnswer
	switch {
	case w.mode == passed:
		return w.w.Write(p)
	case w.over:
	case w.mode == whole && len(w.buf)+len(p) > most:
		w.over, w.buf = true, nil
	case w.mode == whole:
		w.buf = append(w.buf, p...)
	default:
		end := w.split.Split(p)
		w.buf = append(w.buf, p[:end]...)
		if end > 0 {
			if err := w.passEvents(w.buf); err != nil {
				return 0, err
			}
			w.buf = w.buf[:0]
		}
		if w.buf = append(w.buf, p[end:]...); len(w.buf) > most {
			w.buf = nil
			return len(p), w.failStream(tooLarge(most))
		}
	}
	return len(p), nil
}

func tooLarge(most int) *api.Error {
	e := api.Errorf(http.StatusBadGateway, "answer_too_large", "the answer has more than %s, which is not kept: leave store out", api.Bytes(most))
	e.NoRetry = true
	return e
}

// finish completes the answer after the handler has returned.
func (w *responseWriter) finish() {
	switch {
	case w.mode == events && !w.over && len(w.buf) > 0: // no empty line follows the last event
		_ = w.passEvents(append(w.buf, "\n\n"...)) // the client may have left
	case w.mode == whole:
		w.sendAnswer()
	}
}

func (w *responseWriter) sendAnswer() {
	body, err := w.buf, error(nil)
	if w.over {
		err = tooLarge(w.k.maxAnswer)
	} else if body, err = w.keepResponse(body); err == nil {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.w.WriteHeader(w.status)
		out := newTimed(w.w, w.r)
		defer out.end()
		_, _ = out.Write(body) // the client may have left
		return
	}
	for _, name := range []string{"Content-Length", "Content-Encoding"} {
		w.Header().Del(name)
	}
	api.WriteError(w.w, w.explainError(err))
}

// timed ends an answer that its client leaves unread for [writeTimeout].
type timed struct {
	http.ResponseWriter
	out    *http.ResponseController
	unread relay.WriteDeadline
}

func newTimed(w http.ResponseWriter, r *http.Request) *timed {
	return &timed{w, http.NewResponseController(w), relay.WriteDeadline{Timeout: writeTimeout, Buffered: relay.Buffered(r)}}
}

func (t *timed) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *timed) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		part := p[n:min(len(p), n+32<<10)]
		t.unread.Move(t.out, len(part))
		var wrote int
		wrote, err = t.ResponseWriter.Write(part)
		n += wrote
	}
	t.unread.Done()
	return n, err
}

func (t *timed) end() { t.unread.Clear(t.out) }

func (w *responseWriter) keepResponse(response []byte) ([]byte, error) {
	output, _ := jsonfield.Find(response, "output")
	raw, _ := jsonfield.Find(response, "status")
	if len(output) == 0 || output[0] != '[' || len(raw) < 2 || raw[0] != '"' {
		return nil, api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime answered with something that is no response")
	}
	status := string(jsonfield.Text(raw))
	response = w.turn.setFields(response, w.kept.ID)
	if !w.turn.Store && w.turn.Conversation == "" {
		return response, nil
	}
	switch status {
	case "completed", "incomplete", "failed":
	default:
		return nil, api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime answered with a response that is %.40q: want one that has ended", status)
	}
	if w.done {
		return response, nil
	}
	w.kept.Status = status
	keep := func() (string, error) {
		if !w.turn.Store {
			return "", nil
		}
		input := w.input
		if w.whole != nil {
			input = w.whole
		}
		return w.kept.ID, w.k.store.KeepResponse(w.kept, w.before, input, response, w.turn.Claim)
	}
	var err error
	if owner, to := w.kept.Owner, w.turn.Conversation; to != "" && status != "failed" {
		_, err = w.k.store.AddTurn(owner, to, w.input, response, w.k.fits(owner, int64(len(w.input)+len(response)), true), keep)
		err = noConversation(err, to)
	} else {
		_, err = keep()
	}
	if err != nil {
		return nil, err
	}
	w.done = true
	w.k.count("kept")
	return response, nil
}

func (w *responseWriter) explainError(err error) *api.Error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, store.ErrFenced) {
		return api.Errorf(http.StatusConflict, "", "the response was cancelled")
	}
	w.k.count("failed")
	w.k.log.Error("keep a response", "response", w.kept.ID, "error", err)
	if errors.As(explain(err), &e) {
		e.Message = "the response was not stored: " + e.Message
	} else {
		e = api.Errorf(http.StatusInternalServerError, "storage_failed", "the response was not stored")
	}
	e.NoRetry = true
	return e
}

// passEvents passes whole events on, the last one of a response once the response is stored.
func (w *responseWriter) passEvents(all []byte) error {
	var split relay.Splitter
	for rest := all; len(rest) > 0 && !w.over; {
		n := firstEvent(&split, rest)
		told, err := w.rewriteEvent(rest[:n])
		if err != nil {
			return w.failStream(w.explainError(err))
		}
		if _, err := w.w.Write(told); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

func firstEvent(split *relay.Splitter, all []byte) int {
	for at := 0; at < len(all); {
		line := bytes.IndexAny(all[at:], "\r\n") + 1
		if line == 0 {
			break
		}
		if end := split.Split(all[at : at+line]); end > 0 {
			return at + end
		}
		at += line
	}
	return len(all)
}

func (w *responseWriter) failStream(e *api.Error) error {
	w.over = true
	_, err := w.w.Write(api.StreamResponses.Error(e, w.number))
	return err
}

func (w *responseWriter) rewriteEvent(event []byte) ([]byte, error) {
	data, head := dataOf(event)
	number := w.number
	w.countEvent(data)
	if len(bytes.TrimSpace(data)) > 0 && !ends(data) && !json.Valid(data) {
		return nil, errNoEvent()
	}
	kind, _ := jsonfield.Find(data, "type")
	response, _ := jsonfield.Find(data, "response")
	fault, _ := jsonfield.Find(data, "error")
	last := isKind(kind, head, "response.completed", "response.incomplete", "response.failed")
	switch {
	case !last && (isKind(kind, head, "error") || len(fault) > 0 && fault[0] != 'n'): // null is no error
		w.failed = true
		return event, nil
	case last, !w.done && !w.failed && isLast(event):
		var err error
		if response, err = w.keepResponse(response); err != nil {
			w.number = max(number, w.number-1) // the error takes its place
			return nil, err
		}
	case len(response) == 0 || response[0] != '{':
		return event, nil
	default:
		response = w.turn.setFields(response, w.kept.ID)
	}
	var told bytes.Buffer
	told.Write(head)
	told.WriteString("data: ")
	if err := json.Compact(&told, jsonfield.Set(data, "response", response)); err != nil {
		return nil, errNoEvent()
	}
	told.WriteString("\n\n")
	return told.Bytes(), nil
}

func errNoEvent() *api.Error {
	return api.Errorf(http.StatusBadGateway, api.CodeRuntimeFailed, "the runtime sent an event that is not valid JSON")
}

// isKind reports whether an event has one of these kinds, by its type or a name. Clients differ in which of the two, and
// which of several names, they read.
func isKind(kind, lines []byte, any ...string) bool {
	if len(kind) > 1 && kind[0] == '"' && slices.Contains(any, string(jsonfield.Text(kind))) {
		return true
	}
	for line := range bytes.Lines(lines) {
		if name, found := bytes.CutPrefix(line, []byte("event:")); found && slices.Contains(any, string(bytes.TrimSpace(name))) {
			return true
		}
	}
	return false
}

func isLast(event []byte) bool {
	judge := relay.NewJudge(api.StreamResponses)
	judge.See(event)
	return judge.Whole(false)
}

func ends(data []byte) bool { return string(bytes.TrimSpace(data)) == "[DONE]" }

// countEvent reads an event's number: a following error gets the next one.
func (w *responseWriter) countEvent(data []byte) {
	if raw, found := jsonfield.Find(data, "sequence_number"); found {
		if n, err := strconv.Atoi(string(raw)); err == nil {
			w.number = n + 1
		}
	}
}

func dataOf(event []byte) (data, others []byte) {
	for rest := event; len(rest) > 0; {
		line := rest
		if end := bytes.IndexAny(rest, "\r\n"); end >= 0 {
			line, rest = rest[:end], rest[end+1:]
		} else {
			rest = nil
		}
		value, found := bytes.CutPrefix(line, []byte("data:"))
		switch {
		case len(line) == 0:
		case found && data == nil:
			data = value
		case found:
			data = append(append(bytes.Clone(data), '\n'), value...)
		default:
			others = append(append(others, line...), '\n')
		}
	}
	return data, others
}
