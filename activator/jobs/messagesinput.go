package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/lazyregexp"
)

type messageRequest struct {
	ID     *string         `json:"custom_id"`
	Params json.RawMessage `json:"params"`
}

var messageID = lazyregexp.New(`^[a-zA-Z0-9_-]{1,64}$`)

// readMessages writes the requests of a batch as lines, and returns their number. It holds one at a time in memory.
func (s *Server) readMessages(in io.Reader, out io.Writer) (int, error) {
	limited := &limited{in: in, most: int64(s.cfg.MaxLine), left: int64(s.cfg.MaxLine)}
	dec := json.NewDecoder(limited)
	expect := func(all ...json.Token) error {
		for _, want := range all {
			switch got, err := dec.Token(); {
			case err != nil:
				return wrongBatch(err)
			case got != want:
				return api.BadRequest("requests", "the body has %.60v in the place of %v: want {\"requests\": […]}", got, want)
			}
		}
		return nil
	}
	if err := expect(json.Delim('{'), "requests", json.Delim('[')); err != nil {
		return 0, err
	}
	check, n := newChecker(endpointMessages, s.cfg), 0
	for ; dec.More(); n++ {
		limited.left = limited.most
		if err := check.checkMessage(dec, n, out); err != nil {
			return 0, wrongBatch(err)
		}
	}
	if err := expect(json.Delim(']'), json.Delim('}')); err != nil {
		return 0, err
	}
	limited.left = limited.most
	if extra, err := dec.Token(); !errors.Is(err, io.EOF) {
		return 0, errors.Join(wrongBatch(err), api.BadRequest("", "the body has %v behind its end: want {\"requests\": […]}", extra))
	}
	if n == 0 {
		return 0, api.BadRequest("requests", "the batch has no requests: want {\"requests\": [{\"custom_id\": …, \"params\": {…}}]}")
	}
	return n, nil
}

func (c *checker) checkMessage(dec *json.Decoder, n int, out io.Writer) error {
	var q messageRequest
	where := fmt.Sprintf("requests.%d", n)
	if err := dec.Decode(&q); err != nil {
		return err
	}
	switch {
	case n >= c.cfg.MaxLines:
		return api.BadRequest("requests", "the batch has more than %d requests: make several of it", c.cfg.MaxLines)
	case q.ID == nil || !messageID().MatchString(*q.ID):
		return api.BadRequest(where+".custom_id", "%s.custom_id is %.80q: want 1 to 64 letters, digits, _ and -", where, text1(q.ID))
	}
	post, url := http.MethodPost, endpointMessages
	var body bytes.Buffer
	if len(q.Params) > 0 {
		if err := json.Compact(&body, q.Params); err != nil {
			return err
		}
	}
	line := request{ID: q.ID, Method: &post, URL: &url, Body: body.Bytes()}
	if len(line.Body) == 0 || line.Body[0] != '{' {
		return api.BadRequest(where+".params", "%s.params is missing: want what a message is asked for", where)
	}
	if c.checkBody(n+1, 0, line.Body, &line); len(c.faults) > 0 {
		return api.BadRequest(where, "%s: %s", where, c.faults[0].Message)
	}
	c.in.lines = c.in.lines[:0] // the lines are on disk
	written := text(line)
	if len(written) > c.cfg.MaxLine {
		return api.BadRequest(where, "%s has %d bytes: want %d at most", where, len(written), c.cfg.MaxLine)
	}
	_, err := out.Write(written)
	return err
}

// limited bounds the length of each request in a body. The decoder's read-ahead counts for the next request.
type limited struct {
	in         io.Reader
	most, left int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.left < 0 {
		return 0, api.BadRequest("requests", "a request is too long: want %d bytes at most", l.most)
	}
	n, err := l.in.Read(p)
	l.left -= int64(n)
	return n, err
}

func wrongBatch(err error) error {
	if wrong := api.Explain(err); wrong != err {
		return api.BadRequest("requests", "the body: %v: want {\"requests\": [{\"custom_id\": …, \"params\": {…}}]}", wrong)
	}
	return err
}
