package door

import (
	"net/http"
	"strings"

	"github.com/rouse-dev/rouse/activator/federation/agent"
	"github.com/rouse-dev/rouse/activator/share"
	"github.com/rouse-dev/rouse/api/control"
)

// Share exchanges clients' use with the other declared front doors; nil without peers. Each proves who it is by the token
// of its own agent. Call it once, after [Front.Declare].
func (f *Front) Share(peers *agent.Config) *share.Share {
	if peers == nil {
		return nil
	}
	f.share = share.New(peers.Cluster, f.run, true, control.New(f, func() string {
		token, _ := peers.Token() // without one the others refuse
		return token
	}), f.log)
	f.meetOthers()
	return f.share
}

func (f *Front) meetOthers() {
	if f.share == nil {
		return
	}
	var others []share.Activator
	f.mu.Lock()
	for name, c := range f.clusters {
		if c.Front {
			others = append(others, share.Activator{Name: name, Endpoint: endpoint(name, "")})
		}
	}
	f.mu.Unlock()
	f.share.Set(others)
}

// ServeUsage serves [control.PathUsage]. It reads no body before a token has proved a front door.
func (f *Front) ServeUsage(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	proven := map[string]bool{}
	f.mu.Lock()
	for name, c := range f.clusters {
		if c.Front && c.proves(token, nil) {
			proven[name] = true
		}
	}
	f.mu.Unlock()
	f.share.Serve(w, r, proven)
}
