package jobs

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/rouse-dev/rouse/activator/jobs/store"
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/jsonfield"
)

// CodePrevious is OpenAI's.
const CodePrevious = "previous_response_not_found"

func (k *keeper) response(owner, id string) (store.Job, error) {
	r, err := k.store.Job(owner, id)
	if err == nil && (!r.Done() || !store.IsResponse(id) && !store.IsTurn(id)) {
		err = store.ErrNotFound
	}
	return r, err
}

// slackTurns is how many turns a conversation may have beyond its bound: requests at the same time may each add one.
const slackTurns = 100

// turns returns the responses of a conversation up to id, the oldest first. If one is missing, the error is
// store.ErrNotFound, and the result holds the later ones.
func (k *keeper) turns(owner, id string) ([]store.Job, error) {
	var all []store.Job
	size := int64(0)
	var missing error
	most, bytes := k.maxTurns, int64(maxConversation)
	if store.IsTurn(id) { // bounded when turns are added
		most, bytes = most+slackTurns, 2*bytes
	}
	for id != "" {
		r, err := k.response(owner, id)
		if errors.Is(err, store.ErrNotFound) {
			missing = fmt.Errorf("%w: %s", err, id)
			break
		} else if err != nil {
			return nil, err
		}
		size += r.Answer.Bytes
		switch {
		case len(all) == most:
			return nil, api.BadRequest("previous_response_id", "the conversation has more than %d turns: begin a new one", k.maxTurns)
		case size > bytes:
			return nil, api.BadRequest("previous_response_id", "the conversation has more than %s: begin a new one", api.Bytes(maxConversation))
		}
		all = append(all, r)
		id = r.Previous
	}
	slices.Reverse(all)
	return all, missing
}

// conversation returns the inputs and outputs up to a response as a JSON array, and the responses' ids. take charges for
// bytes before they are read.
func (k *keeper) conversation(owner, previous string, take func(int64) error) (items []byte, ids []string, err error) {
	turns, err := k.turns(owner, previous)
	if err != nil {
		return nil, nil, noPrevious(err, previous)
	}
	size := int64(2)
	for _, t := range turns {
		size += t.Answer.Bytes
	}
	if err := take(2 * size); err != nil { // once for reading, once for sending
		return nil, nil, err
	}
	items = append(make([]byte, 0, size), "[]"...)
	for _, t := range turns {
		input, answer, err := k.store.ReadResponse(t)
		if err != nil {
			return nil, nil, err
		}
		ids = append(ids, t.ID)
		items = join(items, input)
		if output, found := jsonfield.Find(answer, "output"); found {
			items = join(items, output)
		}
	}
	return items, ids, nil
}

func noPrevious(err error, previous string) error {
	if errors.Is(err, store.ErrNotFound) {
		return &api.Error{Status: http.StatusBadRequest, Param: "previous_response_id", Code: CodePrevious,
			Message: fmt.Sprintf("there is no response %.80q to go on from: it, or one before it, was not stored (store: true), was deleted or has expired", previous)}
	}
	return err
}
