package leader

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/relay"
)

// endHonestly ends a stream that its leader left unfinished with an error event. For other answers a broken connection suffices.
func endHonestly(resp *http.Response) error {
	kind := resp.Header.Get("Content-Type")
	style := api.EventsOf(resp.Request.URL.Path)
	switch {
	case resp.Header.Get("Content-Encoding") != "":
		return nil // an event can't be added
	case strings.HasPrefix(kind, "application/x-ndjson"):
		style = api.StreamLines
	case !strings.HasPrefix(kind, "text/event-stream"):
		return nil
	}
	events := relay.NewEvents(relay.NewSource(resp.Request.Context(), resp.Body, readSize, largestEvent, nil), style)
	events.AnyEnd = true // the reader of the stream judges how it ends
	resp.Body = &honest{Closer: resp.Body, events: events, style: style}
	return nil
}

const (
	readSize = 4 << 10
	// A larger event is passed on in parts.
	largestEvent = 1 << 20
)

// honest delivers whole events; a partial one before a broken connection is dropped.
type honest struct {
	io.Closer
	events *relay.Events
	style  api.Stream
	left   []byte
	ended  bool
}

func (h *honest) Read(p []byte) (int, error) {
	for len(h.left) == 0 {
		if h.ended {
			return 0, io.EOF
		}
		next, err := h.events.Next()
		if h.left, h.ended = next, err != nil; errors.Is(err, relay.ErrCut) {
			h.left = append(bytes.Clone(next), h.style.Error(errCut, h.events.Number())...)
		}
	}
	n := copy(p, h.left)
	h.left = h.left[n:]
	return n, nil
}

var errCut = api.Errorf(http.StatusBadGateway, api.CodeStreamCut, "the worker that led has died before the answer was complete")
