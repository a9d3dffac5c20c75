package runtime

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// sleepMode makes vLLM's calls (vLLM documentation, "Sleep Mode"). They need vLLM's developer mode, so only we may reach the port.
type sleepMode struct {
	client *client
	// reload loads what a wake from level 2 lost besides the weights; may be nil.
	reload func(ctx context.Context, e api.Endpoint) error
	// external: a connector also keeps the KV cache elsewhere, which is reset with new weights. Not every connector can.
	external bool
}

// forget discards all cached results of other weights. vLLM reports success since 0.32.
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
		err = errors.New("the server did not reset its prefix cache after the weights changed: some blocks are in use")
	}
	return err
}

const setSleepMode = "start vLLM with --enable-sleep-mode, and with VLLM_SERVER_DEV_MODE=1 in its environment"

// sleep lets running requests end (mode=wait), which vLLM's default would cut.
func (m sleepMode) sleep(ctx context.Context, e api.Endpoint, level api.Level) error {
	_, err := m.client.call(ctx, http.MethodPost, e, fmt.Sprintf("/sleep?level=%d&mode=wait", level), nil)
	if Missing(err) {
		return fmt.Errorf("the server has no sleep mode: %s: %w: %w", setSleepMode, errors.ErrUnsupported, err)
	}
	if err != nil {
		return err
	}
	asleep, err := m.asleep(ctx, e, true)
	if err == nil && !asleep {
		err = errors.New("the server accepted the call to sleep and still says that it is awake")
	}
	return err
}

// wake requires an answer. If that takes long it asks whether the server sleeps: one that sleeps on after the calls blocks requests
// forever.
func (m sleepMode) wake(ctx context.Context, e api.Endpoint, level api.Level, show func(context.Context, api.Endpoint, api.ModelName) (Answer, error), serves func()) (Answer, error) {
	if err := m.rouse(ctx, e, level); err != nil {
		return Answer{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{}) // closed when the watch has ended
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

const sleepsOnAfter = 200 * time.Millisecond

var errSleepsOn = errors.New("the server accepted the calls to wake and still says that it sleeps")

// rouse follows the documented order for level 2. A server without sleep mode never slept.
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
		if i == 0 && Missing(err) {
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

func (m sleepMode) again(ctx context.Context, e api.Endpoint) error {
	if _, err := m.client.call(ctx, http.MethodPost, e, "/collective_rpc", reloadWeights); err != nil {
		return err
	}
	return m.forgetAndReload(ctx, e)
}

func (m sleepMode) forgetAndReload(ctx context.Context, e api.Endpoint) error {
	if err := m.forget(ctx, e); err != nil || m.reload == nil {
		return err
	}
	return m.reload(ctx, e)
}

var reloadWeights = map[string]string{"method": "reload_weights"}

// asleep returns expected if the server does not support the question.
func (m sleepMode) asleep(ctx context.Context, e api.Endpoint, expected bool) (bool, error) {
	var answer struct {
		Sleeping *bool `json:"is_sleeping"`
	}
	err := m.client.ask(ctx, http.MethodGet, e, "/is_sleeping", nil, &answer)
	switch {
	case Missing(err):
		return expected, nil
	case err != nil:
		return false, err
	case answer.Sleeping == nil:
		return false, errors.New("GET /is_sleeping: the answer has no field is_sleeping")
	}
	return *answer.Sleeping, nil
}

//go:embed hopeless.txt
var hopeless string

// unreadable is Ollama's answer about a file whose format it can't read. Without enough memory
// it logs the same, but does not answer so.
const unreadable = "unable to load model: "

// Hopeless returns the first line of output about a failure that recurs at every start, or "".
func Hopeless(output string) string { return saying(output, hopeless) }

// tooSlow is Ray's message, in lower case, when its start takes over half a minute, a fixed limit.
const tooSlow = "the current node timed out during startup"

// TooSlow reports whether a server gave up its start because the machine is busy.
func TooSlow(output string) bool { return saying(output, tooSlow) != "" }

// saying returns the first line that has all parts of a message, in order. Messages are lines, with … between parts; # begins a remark.
func saying(output, messages string) string {
	all := strings.Split(strings.TrimSpace(messages), "\n")
	for line := range strings.Lines(output) {
		for _, message := range all {
			if message != "" && message[0] != '#' && inOrder(strings.ToLower(line), message) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}

func inOrder(line, message string) bool {
	for part := range strings.SplitSeq(message, " … ") {
		_, rest, found := strings.Cut(line, part)
		if !found {
			return false
		}
		line = rest
	}
	return true
}

func (e *statusError) Permanent() bool {
	return strings.HasPrefix(e.message, unreadable) || Hopeless(e.message) != ""
}

// Permanent reports whether err says that another attempt fails too.
func Permanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}

// engineDead is vLLM's answer, in lower case, once its engine has died: vLLM ends some seconds later.
const engineDead = "enginecore encountered an issue"

func (e *statusError) Dying() bool {
	return e.status == http.StatusInternalServerError && strings.Contains(strings.ToLower(e.message), engineDead)
}

// Dying reports whether err says that the server is about to end.
func Dying(err error) bool {
	var d interface{ Dying() bool }
	return errors.As(err, &d) && d.Dying()
}

type lasting struct{ error }

func (e lasting) Unwrap() error { return e.error }

func (e lasting) Permanent() bool { return true }

// unusable marks an error of a declared model as permanent, unless an existing file could not be read.
func unusable(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return lasting{err}
}
