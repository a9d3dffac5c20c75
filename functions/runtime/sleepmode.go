package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// sleepMode are vLLM's calls to sleep and wake (vLLM documentation, "Sleep Mode").
// They need vLLM's developer mode, which is why the port must be ours alone.
type sleepMode struct {
	client *client
	// reload is called at the end of a wake from level 2: what beside the weights was
	// lost with them is loaded again. Nil: nothing.
	reload func(ctx context.Context, e api.Endpoint) error
	// external says that a connector keeps the KV cache elsewhere, too. Nobody knows whether weights that were read again are those
	// that it was computed with, so it has to forget it then; one that does not know how to does not.
	external bool
}

// forget has nothing cached left of what other weights made. vLLM 0.32 says whether that is so; older ones do not.
func (m sleepMode) forget(ctx context.Context, e api.Endpoint) error {
	path := "/reset_prefix_cache"
	if m.external {
		path += "?reset_external=true"
	}
	raw, err := m.client.call(ctx, http.MethodPost, e, path, nil)
	var said struct {
		Success *bool `json:"success"`
	}
	if err == nil && json.Unmarshal(raw, &said) == nil && said.Success != nil && !*said.Success {
		err = errors.New("the server did not forget what its prefix cache has of the weights before: blocks of it are in use")
	}
	return err
}

// setSleepMode is what to do about a server that does not know the calls.
const setSleepMode = "start vLLM with --enable-sleep-mode, and with VLLM_SERVER_DEV_MODE=1 in its environment"

// sleep puts the server to sleep. mode=wait lets what runs end: who calls has
// drained, and vLLM's default cuts it.
func (m sleepMode) sleep(ctx context.Context, e api.Endpoint, level api.Level) error {
	_, err := m.client.call(ctx, http.MethodPost, e, fmt.Sprintf("/sleep?level=%d&mode=wait", level), nil)
	if missing(err) {
		return fmt.Errorf("the server has no sleep mode: %s: %w: %w", setSleepMode, errors.ErrUnsupported, err)
	}
	if err != nil {
		return err
	}
	asleep, err := m.asleep(ctx, e, true)
	if err == nil && !asleep {
		err = errors.New("the server took the call to sleep and says that it is awake")
	}
	return err
}

// wake makes the calls, and has the server show that it is awake: by an answer. It
// is not asked whether it sleeps unless the answer takes long, for a server that took the
// calls and sleeps on keeps requests waiting for ever.
func (m sleepMode) wake(ctx context.Context, e api.Endpoint, level api.Level, show func(context.Context, api.Endpoint, api.ModelName) (Answer, error), serves func()) (Answer, error) {
	if err := m.rouse(ctx, e, level); err != nil {
		return Answer{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{}) // closed when nobody watches any more
	go func() {
		defer close(watched)
		select {
		case <-time.After(sleepsOnAfter):
			if asleep, err := m.asleep(ctx, e, false); err == nil && asleep {
				cancel(errSleepsOn)
			}
		case <-ctx.Done():
		}
	}()
	answer, err := shown(ctx, e, show, serves)
	if err != nil && errors.Is(context.Cause(ctx), errSleepsOn) {
		err = errSleepsOn
	}
	cancel(nil)
	<-watched
	return answer, err
}

// sleepsOnAfter is how long an answer takes that makes one ask whether the server sleeps.
const sleepsOnAfter = 200 * time.Millisecond

var errSleepsOn = errors.New("the server took the calls to wake and says that it sleeps")

// rouse follows the documented order for level 2: the memory of the weights, the
// weights, the memory of the KV cache, and then nothing cached may be left of what
// the lost weights made. A server without the mode never slept.
func (m sleepMode) rouse(ctx context.Context, e api.Endpoint, level api.Level) error {
	type step struct {
		path string
		body any
	}
	steps := []step{{path: "/wake_up"}}
	if level >= api.Level2 {
		steps = []step{
			{path: "/wake_up?tags=weights"},
			{path: "/collective_rpc", body: reloadWeights},
			{path: "/wake_up?tags=kv_cache"},
		}
	}
	for i, s := range steps {
		_, err := m.client.call(ctx, http.MethodPost, e, s.path, s.body)
		if i == 0 && missing(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	if level >= api.Level2 {
		return m.forgetAndReload(ctx, e)
	}
	return nil
}

// again has an awake server read its weights, in place.
func (m sleepMode) again(ctx context.Context, e api.Endpoint) error {
	if _, err := m.client.call(ctx, http.MethodPost, e, "/collective_rpc", reloadWeights); err != nil {
		return err
	}
	return m.forgetAndReload(ctx, e)
}

// forgetAndReload ends what reads weights.
func (m sleepMode) forgetAndReload(ctx context.Context, e api.Endpoint) error {
	if err := m.forget(ctx, e); err != nil || m.reload == nil {
		return err
	}
	return m.reload(ctx, e)
}

// reloadWeights is the call that reads the weights from disk.
var reloadWeights = map[string]string{"method": "reload_weights"}

// asleep asks the server; where it does not know the question, the answer is as expected.
func (m sleepMode) asleep(ctx context.Context, e api.Endpoint, expected bool) (bool, error) {
	var answer struct {
		Sleeping *bool `json:"is_sleeping"`
	}
	err := m.client.ask(ctx, http.MethodGet, e, "/is_sleeping", nil, &answer)
	switch {
	case missing(err):
		return expected, nil
	case err != nil:
		return false, err
	case answer.Sleeping == nil:
		return false, errors.New("GET /is_sleeping: the answer has no field is_sleeping")
	}
	return *answer.Sleeping, nil
}
