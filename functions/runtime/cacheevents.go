package runtime

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

const cacheEvents = "--kv-events-config"

// publisher's endpoint is of a server's KV cache events; empty: none.
type publisher struct{ endpoint string }

func (p publisher) CacheEvents() string { return p.endpoint }

// publish puts the events' socket into dir, if args enable events: by default everybody could connect, and events hold the tokens of
// prompts. A given endpoint stays. With ranks nothing is published: several servers would share the socket.
func publish(args []string, dir string, ranks bool) (publisher, []string, error) {
	at, text := -1, ""
	for at, text = range ValuesOf(args, cacheEvents) { // the last one counts
	}
	if at < 0 {
		return publisher{}, args, nil
	}
	var cfg map[string]any
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return publisher{}, nil, fmt.Errorf("option %s %.100s: want a JSON object such as {\"enable_kv_cache_events\": true}: %w", cacheEvents, text, err)
	}
	if on, said := cfg["enable_kv_cache_events"].(bool); cfg == nil || said && !on || cfg["publisher"] == "null" || ranks {
		return publisher{}, args, nil
	}
	if endpoint, named := cfg["endpoint"].(string); named {
		return publisher{here(endpoint)}, args, nil
	}
	if dir == "" {
		return publisher{}, args, nil
	}
	cfg["publisher"], cfg["endpoint"] = "zmq", "ipc://"+filepath.Join(dir, "kv.sock")
	raw, err := json.Marshal(cfg)
	if err != nil {
		return publisher{}, nil, fmt.Errorf("option %s: %w", cacheEvents, err)
	}
	args = slices.Clone(args)
	if strings.Contains(args[at], "=") {
		args[at] = cacheEvents + "=" + string(raw)
	} else {
		args[at+1] = string(raw)
	}
	return publisher{"ipc://" + filepath.Join(dir, "kv.sock")}, args, nil
}

// here returns the local address of an endpoint; empty: the server does not bind it, but connects to a listener.
func here(endpoint string) string {
	for _, all := range []string{"tcp://*:", "tcp://0.0.0.0:", "tcp://[::]:"} {
		if port, is := strings.CutPrefix(endpoint, all); is {
			return "tcp://127.0.0.1:" + port
		}
	}
	if strings.HasPrefix(endpoint, "ipc://") {
		return endpoint
	}
	return ""
}
