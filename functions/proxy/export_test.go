package proxy

import (
	"github.com/rouse-dev/rouse/api"
	"github.com/rouse-dev/rouse/internal/relay"
)

// Route reports whether a path is a client path, and returns its pattern.
func Route(method, path string) (pattern string, found bool) {
	p, found := api.FindPath(method, path)
	return p.Pattern, found
}

// TakeAll takes events one by one and returns what the client gets, and the numbers at the end. With forget each chunk is read as if it
// were the first of its kind.
func TakeAll(asked relay.Asked, events []string, forget bool) (got, told string) {
	r, m := report{asked: asked, tells: true, learned: &(&Proxy{}).moved}, relay.Usage{Style: api.StreamCompletion}
	var buffer []byte
	for i, e := range events {
		buffer = append(buffer[:0], e...)
		got += string(r.take(buffer, i == len(events)-1, &m))
		if forget {
			r.plain = relay.Plain{}
		}
	}
	return got, m.Told()
}
